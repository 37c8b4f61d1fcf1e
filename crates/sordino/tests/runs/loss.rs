//! `--loss`: a support vector machine on a table of two classes.

use crate::place::Place;

#[test]
fn a_support_vector_machine_is_trained_shown_and_applied() {
    let place = Place::new("hinge");
    let flags = "--epochs 20 --seed 1 --test-fraction 0.2";
    let trained = place.json(&format!("train --loss hinge {flags} --out run"));
    assert!(trained["test_accuracy"].as_f64().unwrap() > 0.95, "{trained}");
    let settings = place.read("run/config.toml");
    assert!(settings.contains("loss = \"hinge\"") && settings.contains("model = \"linear\""), "{settings}");
    assert_eq!(place.json("show run")["test_accuracy"], trained["test_accuracy"]);
    // It has classes and no probabilities.
    place.write("new.data", "p,x,s,n,t,p,f,c,n,k,e,e,s,s,w,w,p,w,o,p,k,s,u\n");
    let predicted = place.text_with_notes("predict --run run --data new.data");
    assert_eq!(predicted, "id,prediction\n1,p\n");
    // The settings of the run give the same run.
    place.text("train --config run/config.toml --out again");
    let weights = |run: &str| std::fs::read(place.0.join(run).join("model.safetensors")).unwrap();
    let tensors = |run: &str| weights(run)[weights(run).len() - 4 * 127..].to_vec();
    assert_eq!(tensors("run"), tensors("again"));
    // The same network with the logistic loss learns other weights.
    place.text(&format!("train --model linear {flags} --out logistic"));
    assert_ne!(tensors("run"), tensors("logistic"));
}

#[test]
fn a_loss_for_two_classes_refuses_other_targets_and_networks() {
    let place = Place::new("loss-refused");
    place.write("three.csv", "x,y\n1,a\n2,b\n3,c\n");
    place.write("numbers.csv", "x,y\n1,0.5\n2,1.5\n");
    place.write(
        "three.toml",
        "target = 'y'\n[[columns]]\nname = 'x'\ntype = 'number'\ncenter = 0.0\nscale = 1.0\n\
         [[columns]]\nname = 'y'\ntype = 'category'\nvalues = ['a', 'b', 'c']\n",
    );
    place.write(
        "numbers.toml",
        "target = 'y'\n[[columns]]\nname = 'x'\ntype = 'number'\ncenter = 0.0\nscale = 1.0\n\
         [[columns]]\nname = 'y'\ntype = 'number'\ncenter = 0.0\nscale = 1.0\n",
    );
    place.write("two.toml", "input = { features = 126 }\n[[layers]]\ntype = 'linear'\noutputs = 2\n");
    for (flags, problem) in [
        (
            "--data three.csv --schema three.toml --test-fraction 0",
            "for two classes, but the data has 3 classes",
        ),
        (
            "--data numbers.csv --schema numbers.toml --test-fraction 0",
            "for two classes, but the data has targets that are numbers",
        ),
        ("--model two.toml", "this loss needs a network with 1 output, but two.toml has 2"),
    ] {
        let message = place.refusal(&format!("train {flags} --loss hinge --out run"));
        assert!(message.contains(problem) && message.contains("leave out --loss"), "{message}");
        assert!(!place.has("run"));
    }
    let message = place.refusal("train --loss hing");
    assert!(message.contains("hinge"), "{message}");
}
