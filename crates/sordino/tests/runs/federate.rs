//! Federated training, simulated on one machine.

use crate::place::Place;

/// 120 hospitals with 1 to 9 visits each. The label follows from the first number.
fn visits(place: &Place) {
    let mut table = "hospital,a,b,ill\n".to_owned();
    for hospital in 0..120_u32 {
        for visit in 0..1 + hospital * 7 % 9 {
            let a = (hospital * 37 + visit * 11) % 101;
            table += &format!("{hospital},{},{},{}\n", f64::from(a) / 50.0 - 1.0, visit, u32::from(a > 50));
        }
    }
    place.write("visits.csv", &table);
}

const FEDERATE: &str = "federate --data visits.csv --classes 2 --rounds 20 --clients-per-round 9";

#[test]
fn the_statement_the_ledger_and_json_name_the_client() {
    let place = Place::new("federate-statement");
    visits(&place);
    let text = place.text(&format!("{FEDERATE} --client-column hospital --local-steps 3 --out run"));
    assert!(
        text.contains("protects     all records of one client (hospital), relation add/remove"),
        "{text}"
    );
    assert!(text.contains("on 96 clients (hospital) of"), "{text}");
    assert!(text.contains("24 of your 120 clients (hospital) were held back for testing"), "{text}");
    let shown = place.json("show run");
    assert_eq!((shown["training_records"].as_u64(), shown["test_records"].as_u64()), (Some(96), Some(24)));
    assert_eq!((shown["unit"].as_str(), shown["records_per_unit"].as_u64()), (Some("hospital"), None));
    assert_eq!(shown["protect"].as_str(), Some("clients"));
    let (ledger, config) = (place.read("run/ledger"), place.read("run/config.toml"));
    for setting in
        ["protect = \"clients\"", "unit = \"hospital\"", "local_steps = 3", "local_batch_size = 32"]
    {
        assert!(config.contains(setting), "{config}");
    }
    assert!(ledger.contains("local_steps = 3") && !config.contains("unit_gradient"), "{config}");
    let page = place.text_with_notes("report run --out page.html") + &place.read("page.html");
    assert!(page.contains("The whole update of a client is clipped"), "{page}");
}

#[test]
fn records_are_split_over_clients_by_their_index() {
    let place = Place::new("federate-split");
    let text = place.text("federate --clients 50 --rounds 5 --out run");
    assert!(text.contains("protects     all records of one client, relation add/remove"), "{text}");
    assert!(text.contains("on 40 clients of"), "{text}");
    assert!(place.read("run/config.toml").contains("clients = 50"));
    // The clients of runs with another split are other units.
    place.text_with_notes("federate --clients 100 --rounds 5 --out runs/1");
    let other = place.text_with_notes("federate --clients 60 --rounds 5 --out runs/2");
    assert!(other.contains("these runs have different units of privacy"), "{other}");
}

#[test]
fn a_folder_with_a_file_for_each_client() {
    let place = Place::new("federate-files");
    visits(&place);
    std::fs::create_dir(place.0.join("clients")).unwrap();
    for client in 0..10_usize {
        let rows = (0..client + 1).map(|row| format!("{},{},{}\n", row as f64 / 10.0, client, row % 2));
        place.write(&format!("clients/{client}.csv"), &("a,b,ill\n".to_owned() + &rows.collect::<String>()));
    }
    let run = "federate --data clients --clients files --classes 2 --rounds 5 --clients-per-round 4";
    let text = place.text_with_notes(&format!("{run} --out run"));
    assert!(
        text.contains("all records of one client, relation") && text.contains("on 8 clients of"),
        "{text}"
    );
    // A file of another form, and a folder with a single client.
    place.write("clients/7.csv", "a,ill\n0.5,1\n");
    assert!(place.refusal(&format!("{run} --out wrong")).contains("7.csv"));
    std::fs::create_dir(place.0.join("one")).unwrap();
    place.write("one/1.csv", "a,ill\n0.5,1\n");
    let refused = place.refusal("federate --data one --clients files --classes 2 --out wrong");
    assert!(refused.contains("has 1 files, but there must be at least 2 clients"), "{refused}");
    assert!(!place.has("wrong"));
}

#[test]
fn every_algorithm_trains_on_clients() {
    let place = Place::new("federate-algorithms");
    visits(&place);
    for algorithm in place.json("algorithms").as_array().unwrap() {
        let name = algorithm["name"].as_str().unwrap();
        let run =
            format!("{FEDERATE} --client-column hospital --local-steps 2 --algorithm {name} --out {name}");
        let text = place.text_with_notes(&run);
        match algorithm["promise"].as_str() {
            Some("sound") => assert!(text.contains("all records of one client (hospital)"), "{name}: {text}"),
            _ => assert!(text.contains("NOT PRIVATE"), "{name}: {text}"),
        }
    }
}

/// Without noise and from a fixed seed, local steps of many clients learn the label.
#[test]
fn clients_learn_together() {
    let place = Place::new("federate-learns");
    let run = "federate --clients 200 --rounds 40 --clients-per-round 40 --local-steps 5 --seed 3 --algorithm none --optimizer sgd";
    let shown = place.text_with_notes(&format!("{run} --learning-rate 1 --out run --json"));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert!(shown["test_accuracy"].as_f64().unwrap() > 0.95, "{shown}");
}

#[test]
fn settings_of_clients_are_refused_with_their_flags() {
    let place = Place::new("federate-refused");
    visits(&place);
    let refusal = |flags: &str| place.refusal(&format!("{FEDERATE} {flags} --out run"));
    let none = refusal("");
    assert!(none.contains("federated training needs clients") && none.contains("--clients 100"), "{none}");
    assert!(refusal("--clients some").contains("clients must be a whole number or files, got some"));
    assert!(refusal("--clients 50 --client-column hospital").contains("exclude each other"));
    assert!(refusal("--client-column doctor").contains("the unit `doctor` is not one of the 4 columns"));
    assert!(refusal("--clients 50 --local-steps 0").contains("got 0"));
    let many = place.refusal("federate --clients 50 --clients-per-round 900 --out run");
    assert!(many.contains("got 900"), "{many}");
    // `train` has no flags of federated training.
    let output = place.run("train --local-steps 3");
    assert_eq!(output.status.code(), Some(2));
    place.write("run.toml", "local_steps = 3\n");
    assert!(
        place.refusal("train --config run.toml --out run").contains("local_steps is for federated training")
    );
    place.write("visits.toml", "clients = 50\n");
    assert!(place.refusal("audit --config visits.toml").contains("federated"));
    assert!(!place.has("run"));
}

#[test]
fn a_federated_run_is_resumed() {
    let place = Place::new("federate-resumed");
    crate::place::interrupted_at(
        &place,
        "federate --clients 50 --rounds 25000 --noise-multiplier 50 --out run",
        "run/checkpoint.safetensors",
        std::time::Duration::from_millis(50),
    );
    assert!(place.json("show run")["steps"].as_u64() < Some(25_000));
    let refused = place.refusal("federate --resume run --local-steps 2");
    assert!(refused.contains("settings"), "{refused}");
    let text = place.text_with_notes("federate --resume run");
    assert!(text.contains("all records of one client, relation") && text.contains("resumed once"), "{text}");
}

#[test]
fn records_are_protected_by_a_ledger_for_each_client() {
    let place = Place::new("federate-records");
    let run = "federate --protect records --clients 4 --rounds 10 --local-steps 3 --local-batch-size 100 --epsilon 2";
    let text = place.text_with_notes(&format!("{run} --test-fraction 0 --out run"));
    assert!(text.contains("protects     one training record, relation add/remove"), "{text}");
    assert!(text.contains("4, with 8,124 training records in all"), "{text}");
    let mut epsilons = Vec::new();
    for client in 1..=4 {
        let shown = place.json(&format!("show run/clients/{client}"));
        assert_eq!((shown["steps"].as_u64(), shown["training_records"].as_u64()), (Some(30), Some(2031)));
        assert_eq!(
            (shown["finished"].as_bool(), shown["weights_covered"].as_bool()),
            (Some(true), Some(true))
        );
        // The other clients have other records, so their costs do not add up.
        assert_eq!(shown["runs_on_data"].as_u64().unwrap_or(1), 1, "{shown}");
        assert!(shown.get("unit").is_none());
        // The model depends on the records of all clients, and this epsilon is for those of one.
        let text = place.text(&format!("show run/clients/{client}"));
        assert!(
            text.contains(&format!(
                "one training record of client {client} (the ledgers of the other clients"
            )),
            "{text}"
        );
        epsilons.push(shown["epsilon"].as_f64().unwrap());
    }
    assert!(epsilons.iter().all(|epsilon| *epsilon <= 2.0 && *epsilon > 1.9), "{epsilons:?}");
    // One model for all clients, after enough steps for an average of the parameters, which clients do not have.
    let weights = |client: u32| {
        let bytes = std::fs::read(place.0.join(format!("run/clients/{client}/model.safetensors"))).unwrap();
        bytes[bytes.len() - 400..].to_vec()
    };
    assert_eq!(weights(1), weights(4));
    // The total of a folder does not leave a federation out.
    let other = place.text_with_notes("train --steps 2 --out other");
    assert!(other.contains("is NOT KNOWN: the clients of"), "{other}");
    // The run of a client is not resumed alone.
    assert!(!place.run("train --resume run/clients/1").status.success());
}

/// Clients of different sizes need different noise, and the largest epsilon is that of the federation.
#[test]
fn the_guarantee_is_the_largest_of_the_clients() {
    let place = Place::new("federate-largest");
    let mut table = "hospital,a,ill\n".to_owned();
    for record in 0..300_u32 {
        let hospital = u32::from(record >= 60);
        table += &format!("{hospital},{},{}\n", f64::from(record * 37 % 101) / 50.0 - 1.0, record % 2);
    }
    place.write("visits.csv", &table);
    let run = "federate --data visits.csv --classes 2 --client-column hospital --protect records --noise-multiplier 2 --rounds 4";
    let json =
        place.text_with_notes(&format!("{run} --local-batch-size 30 --test-fraction 0 --out run --json"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let epsilon = |client: usize| json["clients"][client]["epsilon"].as_f64().unwrap();
    // Rates of 30 / 60 and 30 / 240.
    assert_eq!(json["clients"][0]["training_records"].as_u64(), Some(60));
    assert!(epsilon(0) > 2.0 * epsilon(1), "{json}");
    assert_eq!(json["epsilon"].as_f64(), Some(epsilon(0)));
}

#[test]
fn a_federation_is_refused_what_it_cannot_do_and_is_resumed() {
    let place = Place::new("federate-own-ledgers");
    let run = "federate --protect records --clients 4";
    for (flags, part) in [
        ("--test-set protected", "needs public test records"),
        ("--clients-per-round 2", "batch_size has no effect"),
        ("--learning-rate 2", "learning_rate has no effect"),
        ("--average 0.9", "average has no effect"),
    ] {
        let refused = place.refusal(&format!("{run} {flags} --out wrong"));
        assert!(refused.contains(part), "{refused}");
    }
    // Whole clients are held back, and measured exactly because this data is public.
    let text = place.text_with_notes(&format!("{run} --rounds 2 --epsilon 8 --out tested"));
    assert!(text.contains("The test records were measured exactly and are NOT protected."), "{text}");
    let none = place.refusal("federate --protect records --out wrong");
    assert!(none.contains("federated training needs clients"), "{none}");
    crate::place::interrupted_at(
        &place,
        &format!("{run} --test-fraction 0 --rounds 4000 --noise-multiplier 50 --out run"),
        "run/clients/4/checkpoint.safetensors",
        std::time::Duration::from_millis(50),
    );
    let charged = place.json("show run/clients/4")["steps"].as_u64().unwrap();
    assert!(charged < 4000, "{charged}");
    assert!(place.refusal("federate --resume run --local-steps 2").contains("settings"));
    place.text_with_notes("federate --resume run");
    for client in 1..=4 {
        let shown = place.json(&format!("show run/clients/{client}"));
        assert_eq!((shown["finished"].as_bool(), shown["steps"].as_u64()), (Some(true), Some(4000)));
    }
}

#[test]
fn the_noise_of_each_client_under_secure_aggregation() {
    let place = Place::new("federate-secure");
    let noise = "noise --epsilon 4 --delta 1e-5 --sample-rate 0.1 --steps 100 --secure-aggregation";
    let text = place.text(&format!("{noise} clients=110,dropouts=10"));
    assert!(
        text.contains("each of 110 clients adds noise")
            && text.contains("The noise of 100 of them is enough")
    );
    let shown = place.json(&format!("{noise} clients=110,dropouts=6,colluding=4"));
    let z = shown["noise_multiplier"].as_f64().unwrap();
    let each = shown["secure_aggregation"]["each"].as_f64().unwrap();
    assert!((each - z / 10.0).abs() < 1e-12, "{shown}");
    let refused = place.refusal(&format!("{noise} clients=10,dropouts=6,colluding=4"));
    assert!(refused.contains("must be below the number of clients, got 6 + 4 of 10"), "{refused}");
}
