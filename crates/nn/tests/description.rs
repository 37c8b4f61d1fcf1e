//! Descriptions: what is inferred, what is refused and how, and what survives a file.
use sordino_nn::layers::{Linear, Relu, Residual};
use sordino_nn::{Description, Engine, Inputs, Layer, Loss, Network, Params, Shape, Targets, models};

fn described(text: &str) -> Result<Network, String> {
    let description: Description = toml::from_str(text).map_err(|error| error.to_string())?;
    Network::new(&description).map_err(|error| error.to_string())
}

fn refusal(text: &str) -> String {
    described(text).err().unwrap_or_else(|| panic!("accepted: {text}"))
}

#[test]
fn refusals_name_the_layer_the_value_and_the_cure() {
    let image = "input = { image = [3, 8, 8] }\n";
    for (layers, message) in [
        (
            r#"{type="conv2d", channels=32, kernel=4}, {type="flatten"}, {type="linear", outputs=2, inputs=512}"#,
            "layer 2 (linear): expects 512 inputs, gets 800 from layer 1 (flatten of 32x5x5)",
        ),
        (
            r#"{type="linear", outputs=2}"#,
            "layer 0 (linear): needs a vector or a sequence, gets 3x8x8 from the input; put a flatten before it",
        ),
        (
            r#"{type="flatten"}, {type="layer_norm", epsilon=0.0}"#,
            "layer 1 (layer_norm): epsilon must be in (0, 1], got 0",
        ),
        (
            r#"{type="image_to_sequence"}, {type="segments", separator=1}"#,
            "layer 1 (segments): needs a network on tokens with a step for each token, gets 3x8x8",
        ),
        (
            r#"{type="group_norm", groups=2}"#,
            "layer 0 (group_norm): groups must divide the channels, got 2 groups of 3 channels",
        ),
        (
            r#"{type="conv2d", channels=4, kernel=9}"#,
            "layer 0 (conv2d): kernel must be at most the padded image, got 9 for 3x8x8 from the input with padding 0",
        ),
        (
            r#"{type="conv2d", channels=4, kernel=3, stride=0}"#,
            "layer 0 (conv2d): stride must be 1 to 1024, got 0",
        ),
        (
            r#"{type="residual", body=[{type="relu"}, {type="conv2d", channels=5, kernel=1}]}"#,
            "layer 0 (residual): the body gives 5x8x8, but the shortcut gives 3x8x8; they are added and must agree",
        ),
        (
            r#"{type="residual", body=[{type="relu"}, {type="lstm", hidden=1}]}"#,
            "layer 0.body.1 (lstm): needs a sequence, gets 3x8x8 from layer 0.body.0 (relu); for tokens put an embedding before it",
        ),
        (
            r#"{type="relu"}"#,
            "a network must end in a vector or a sequence, but layer 0 (relu) gives 3x8x8; end with flatten or global_average_pool, then linear",
        ),
        (r#"{type="dropout", rate=1.5}"#, "layer 0 (dropout): rate must be in [0, 1), got 1.5"),
        (
            r#"{type="flatten"}, {type="linear", outputs=2, name="a"}, {type="linear", outputs=2, name="a"}"#,
            "two parameters are called a.bias; give the layers different names",
        ),
        ("", "a network needs at least one layer"),
    ] {
        assert_eq!(refusal(&format!("{image}layers = [{layers}]")), message);
    }
    assert_eq!(
        refusal("input = { features = 0 }\nlayers = [{type='linear', outputs=1}]"),
        "input: every dimension must be 1 to 16777216, got 0"
    );
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    for (input, layers) in [
        ("{ image = [1, 8, 8] }", "{type='conv2d', channels=1, kernel=3, padding=1000000000000000000}"),
        ("{ image = [1, 8, 8] }", "{type='conv2d', channels=1, kernel=3, stride=60000}"),
        ("{ image = [1, 100000, 100000] }", "{type='global_average_pool'}"),
        ("{ features = 3 }", "{type='linear', outputs=4611686018427387904}"),
        ("{ sequence = [5, 3] }", "{type='lstm', hidden=4611686018427387904}"),
        ("{ sequence = [10000000, 2] }", "{type='attention', heads=2}"),
        ("{ tokens = { steps = 4, vocabulary = 4611686018427387904 } }", "{type='embedding', width=4}"),
        (
            "{ tokens = { steps = 4, vocabulary = 16777216 } }",
            "{type='embedding', width=16000000}, {type='last_step'}",
        ),
        ("{ tokens = { steps = 1152921504606846976, vocabulary = 4 } }", "{type='embedding', width=4}"),
        ("{ features = 3 }", "{type='tempered_sigmoid', scale=1e-30, temperature=1.0, offset=1e30}"),
    ] {
        let text = format!("input = {input}\nlayers = [{layers}]");
        assert!(
            refusal(&text).contains("permitted")
                || refusal(&text).contains("must be")
                || refusal(&text).contains("needs")
                || refusal(&text).contains("memory"),
            "{}",
            refusal(&text)
        );
    }
    let mut deep = Layer::from(Relu);
    for _ in 0..40 {
        deep = Residual::new(vec![deep.into()]).into();
    }
    let error =
        Network::new(&Description::new(Shape::Features(2)).then(deep)).err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("blocks may be nested at most 16 deep")));
    assert!(Engine::with_workers(models::linear(3).unwrap(), Loss::Hinge, 0).is_err());
    assert!(Engine::with_workers(models::linear(3).unwrap(), Loss::Hinge, usize::MAX).is_err());
}

#[test]
fn a_bag_of_words_outside_the_vocabulary_is_refused_with_the_permitted_range() {
    let bag = |options: &str| {
        let input = "{ tokens = { steps = 4, vocabulary = 10 } }";
        refusal(&format!("input = {input}\nlayers = [{{type='bag_of_words', {options}}}]"))
    };
    assert!(bag("first=10").contains("first must be a token from 0 to 9, got 10"), "{}", bag("first=10"));
    assert!(bag("first=4, size=7").contains("size must be 1 to 6, the number of tokens from 4 on, got 7"));
    assert!(bag("size=0").contains("size"));
    assert!(bag("norm=0.0").contains("norm must be in (0, 1000000], got 0"));
    assert!(bag("rank_power=17").contains("rank_power must be 0 to 16, got 17"));
    let text = "input = { features = 3 }\nlayers = [{type='bag_of_words'}]";
    assert!(refusal(text).contains("needs tokens, gets 3 from the input"), "{}", refusal(text));
}

#[test]
fn stages_that_cannot_be_pooled_are_refused() {
    let stages = |stages: &str| {
        refusal(&format!(
            "input = {{ sequence = [5, 3] }}\nlayers = [{{type='pooled_stages', stages={stages}}}]"
        ))
    };
    assert!(stages("[]").contains("needs at least one stage"));
    assert!(stages("[[{type='relu'}], []]").contains("at least one layer in each"));
    let vector = stages("[[{type='linear', outputs=2}], [{type='last_step'}]]");
    assert!(
        vector.contains("layer 0 (pooled_stages): the output of stage 1 must be a sequence, got 2"),
        "{vector}"
    );
}

#[test]
fn freezing_a_block_freezes_what_is_in_it() {
    let body = vec![Linear::new(3).into(), Relu.into()];
    let mut description = Description::new(Shape::Features(3))
        .then(Residual { body, shortcut: Vec::new() })
        .then(Linear::new(2));
    description.layers[0].frozen = true;
    let network = Network::new(&description).unwrap();
    assert_eq!(network.layers().iter().map(|layer| layer.name.as_str()).collect::<Vec<_>>(), ["1"]);
    assert!(network.layout().get("0.body.0.weight").unwrap().frozen);
}

/// The number of layers before the cut, and the names of the parameters after it.
fn split(text: &str) -> Option<(usize, Vec<String>)> {
    let description: Description = toml::from_str(text).expect("a description");
    let (frozen, rest) = description.split_frozen()?;
    let network = Network::new(&rest).expect("a network");
    Some((frozen.layers.len(), network.layout().slices().iter().map(|slice| slice.name.clone()).collect()))
}

#[test]
fn frozen_layers_at_the_beginning_can_be_split_off() {
    let mixed = r#"
        input = { features = 3 }
        layers = [{type="linear", outputs=3, frozen=true}, {type="relu"},
            {type="residual", body=[{type="linear", outputs=3}, {type="linear", outputs=3, name="second"}]},
            {type="linear", outputs=3, frozen=true}]
    "#;
    let names =
        ["2.body.0.weight", "2.body.0.bias", "2.second.weight", "2.second.bias", "3.weight", "3.bias"];
    assert_eq!(split(mixed), Some((2, names.map(str::to_owned).to_vec())));
    let images = r#"
        input = { image = [1, 5, 5] }
        layers = [{type="conv2d", channels=2, kernel=3, frozen=true}, {type="flatten"}, {type="linear", outputs=2}]
    "#;
    assert_eq!(split(images).map(|(layers, _)| layers), Some(2));
    let dropout = r#"
        input = { features = 3 }
        layers = [{type="linear", outputs=3, frozen=true}, {type="residual", body=[{type="dropout", rate=0.5}]},
            {type="linear", outputs=3, frozen=true}, {type="linear", outputs=2}]
    "#;
    assert_eq!(split(dropout).map(|(layers, _)| layers), Some(1));
    // The segments are read from the tokens, so a cut behind the embedding is not possible.
    let tokens = r#"
        input = { tokens = { steps = 4, vocabulary = 9 } }
        layers = [{type="embedding", width=4, frozen=true}, {type="segments", separator=3}, {type="last_step"}]
    "#;
    assert_eq!(split(tokens), None);
    for trained in [
        r#"layers = [{type="linear", outputs=3}, {type="linear", outputs=2, frozen=true}]"#,
        r#"layers = [{type="relu"}, {type="linear", outputs=2}]"#,
        r#"layers = [{type="linear", outputs=2, frozen=true}]"#,
    ] {
        assert_eq!(split(&format!("input = {{ features = 3 }}\n{trained}")), None, "{trained}");
    }
}

#[test]
fn adapters_are_trained_and_the_weights_beside_them_are_not() {
    let text = r#"
        input = { sequence = [4, 6] }
        layers = [{type="attention", heads=2, lora={rank=2, alpha=4.0}, name="a"}, {type="last_step"}]
    "#;
    let network = described(text).unwrap();
    let trained: Vec<&str> =
        network.layout().slices().iter().filter(|slice| !slice.frozen).map(|slice| &*slice.name).collect();
    assert_eq!(trained, ["a.lora_A.query", "a.lora_A.value", "a.lora_B.query", "a.lora_B.value"]);
    let layers: Vec<&str> = network.layers().iter().map(|layer| &*layer.name).collect();
    assert_eq!(layers, ["a.lora_A", "a.lora_B"]);
    let frozen = described(&text.replace(r#"name="a""#, r#"frozen=true"#)).unwrap();
    assert!(frozen.layers().is_empty());
    let description: Description = toml::from_str(text).unwrap();
    assert_eq!(toml::from_str::<Description>(&toml::to_string(&description).unwrap()).unwrap(), description);
}

#[test]
fn a_misspelt_key_is_an_error_and_not_a_default() {
    let text =
        "input = { image = [1, 8, 8] }\nlayers = [{ type = 'conv2d', channels = 2, kernel = 3, strde = 2 }]";
    assert!(refusal(text).contains("unknown field `strde`"), "{}", refusal(text));
    let text = "input = { features = 3 }\nlayers = [{ type = 'relu', slope = 2 }]";
    assert!(refusal(text).contains("slope"), "{}", refusal(text));
    let text = "input = { features = 3 }\nlayers = [{ type = 'liner', outputs = 2 }]";
    assert!(refusal(text).contains("unknown variant `liner`"), "{}", refusal(text));
}

#[test]
fn descriptions_survive_toml_and_json() {
    for network in [
        models::resnet20(10),
        models::transformer(50, 9, 3),
        models::mnist_cnn(),
        models::gru_classifier(9, 4, 2),
    ] {
        let description = network.unwrap().description().clone();
        let text = toml::to_string(&description).unwrap();
        assert_eq!(toml::from_str::<Description>(&text).unwrap(), description);
        let text = serde_json::to_string(&description).unwrap();
        assert_eq!(serde_json::from_str::<Description>(&text).unwrap(), description);
    }
}

#[test]
fn names_are_those_of_pytorch() {
    let names = |network: Network| -> Vec<String> {
        network.layout().slices().iter().map(|slice| slice.name.clone()).collect()
    };
    let resnet = names(models::resnet20(10).unwrap());
    for name in [
        "conv1.weight",
        "layer1.0.conv1.weight",
        "layer2.0.shortcut.0.weight",
        "layer3.2.norm2.bias",
        "fc.bias",
    ] {
        assert!(resnet.iter().any(|known| known == name), "{name}: {resnet:?}");
    }
    let transformer = names(models::transformer(50, 9, 3).unwrap());
    for name in [
        "embedding.weight",
        "layers.0.self_attn.in_proj_weight",
        "layers.0.self_attn.in_proj_bias",
        "layers.1.self_attn.out_proj.weight",
        "layers.1.linear2.bias",
        "layers.0.norm1.weight",
    ] {
        assert!(transformer.iter().any(|known| known == name), "{name}: {transformer:?}");
    }
    let counts = [
        (models::mnist_cnn(), 26_010),
        (models::lenet5(10), 61_706),
        (models::resnet20(10), 272_474),
        (models::mlp(784, &[512, 256], 10), 535_818),
        (models::lstm_classifier(1000, 32, 2), 64_000 + 512 * 192 + 1024 + 258),
    ];
    for (network, count) in counts {
        assert_eq!(network.unwrap().layout().len(), count);
    }
}

#[test]
fn safetensors_keep_every_bit() {
    for network in [models::mnist_cnn(), models::lstm_classifier(20, 5, 2), models::transformer(20, 5, 2)] {
        let network = network.unwrap();
        let mut params = network.init(3);
        let last = params.values().len() - 1;
        params.values_mut()[0] = f32::MIN_POSITIVE / 4.0;
        params.values_mut()[last] = -0.0;
        let bytes = params.to_safetensors().unwrap();
        let read = Params::from_safetensors(network.layout().clone(), &bytes).unwrap();
        let bits = |params: &Params| params.values().iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&read), bits(&params));
    }
}

#[test]
fn foreign_weights_are_refused_by_name() {
    let network = models::mlp(4, &[3], 2).unwrap();
    let bytes = network.init(1).to_safetensors().unwrap();
    let load = |network: &Network, bytes: &[u8]| {
        Params::from_safetensors(network.layout().clone(), bytes).unwrap_err().to_string()
    };
    let wider = models::mlp(5, &[3], 2).unwrap();
    assert_eq!(load(&wider, &bytes), "fc1.weight has shape [3, 4], but the network needs [3, 5]");
    let deeper = models::mlp(4, &[3, 2], 2).unwrap();
    assert!(load(&deeper, &bytes).contains("is missing"));
    assert!(load(&models::linear(4).unwrap(), &bytes).contains("is not a parameter of this network"));
    assert!(load(&network, &bytes[..20]).contains("not a safetensors file"));
    let path = std::env::temp_dir().join("sordino-no-such-directory").join("model.safetensors");
    assert!(network.init(1).save(&path).unwrap_err().to_string().contains("sordino-no-such-directory"));
}

#[test]
fn the_same_seed_gives_the_same_parameters() {
    let network = models::mnist_cnn().unwrap();
    assert_eq!(network.init(5), network.init(5));
    assert_ne!(network.init(5), network.init(6));
    let weights = network.init(5);
    let conv = weights.slice("conv2.weight").unwrap();
    let bound = 1.0 / 16.0;
    assert!(conv.iter().all(|weight| weight.abs() < bound));
    assert!(conv.iter().any(|weight| weight.abs() > 0.9 * bound));
}

#[test]
fn records_that_do_not_fit_are_refused() {
    let engine = Engine::new(models::mlp(3, &[], 2).unwrap(), Loss::cross_entropy()).unwrap();
    let message = |inputs: &[f32], classes: &[u32]| {
        engine.records(Inputs::Dense(inputs), Targets::Classes(classes)).unwrap_err().to_string()
    };
    assert_eq!(
        message(&[0.0; 7], &[0]),
        "7 input values are not a whole number of records: a record of 3 has 3"
    );
    assert_eq!(message(&[0.0; 6], &[0]), "2 records have 1 targets; every record needs one");
    assert_eq!(message(&[0.0; 6], &[0, 2]), "record 1 has class 2, but only 0 to 1 are permitted");
    let values = Targets::Values { values: &[0.0, 0.0], width: 1 };
    assert!(engine.records(Inputs::Dense(&[0.0; 6]), values).unwrap_err().to_string().contains("classes"));

    let engine = Engine::new(models::gru_classifier(10, 3, 2).unwrap(), Loss::cross_entropy()).unwrap();
    let message = |tokens: &[u32], starts: &[usize]| {
        engine.unlabelled(Inputs::Tokens { tokens, starts }).unwrap_err().to_string()
    };
    assert!(message(&[1, 10], &[0, 2]).starts_with("token 10 at position 1 is not in the vocabulary of 10"));
    assert!(message(&[1, 2], &[0, 1, 1]).starts_with("record 1 is empty"));
    assert!(message(&[1; 4], &[0, 4]).starts_with("record 0 has 4 steps, but the network reads at most 3"));
    assert!(message(&[1; 2], &[0, 3]).starts_with("the last record ends at step 3"));
    assert!(engine.unlabelled(Inputs::Dense(&[0.0; 3])).is_err());

    assert!(Engine::new(models::linear(3).unwrap(), Loss::cross_entropy()).is_err());
    assert!(Engine::new(models::mlp(3, &[], 2).unwrap(), Loss::Logistic).is_err());
    assert!(Engine::new(models::linear(3).unwrap(), Loss::Huber { delta: f32::NAN }).is_err());
    let mut frozen = Description::new(Shape::Features(3)).then(Linear::new(2));
    frozen.layers[0].frozen = true;
    assert!(Engine::new(Network::new(&frozen).unwrap(), Loss::cross_entropy()).is_err());
}
