//! Public files and texts: schemas, tokenizers, plans, settings, networks, algorithms, schedules, grids and pre-trained models.

use std::{fs, path::Path};

use sordino::comparison::Grid;
use sordino_accounting::{Accountant, Delta, Plan};
use sordino_algorithms::{Algorithm, AlgorithmConfig};
use sordino_data::{Encoding, Schema, Source, Text, TextEncoder, embedded, read};
use sordino_nn::{Description, Network, Shape, pretrained::Pretrained};
use sordino_testing::Folder;
use sordino_train::{
    DataDescription, DataFacts, ResolvedModel, Settings, check, parse_algorithm, parse_model, price, resolve,
};

use super::Make;
use crate::{Target, container::Container};

pub(super) const ALL: [(&str, Make); 13] = [
    ("schema", schema),
    ("tokenizer", tokenizer),
    ("plan", plan),
    ("plan-price", plan_price),
    ("settings", settings),
    ("settings-price", settings_price),
    ("algorithm", algorithm),
    ("model-name", model_name),
    ("schedule-file", schedule_file),
    ("network", network),
    ("grid", grid),
    ("pretrained-config", pretrained_config),
    ("pretrained-weights", pretrained_weights),
];

/// The files of a target, and the function that reads one; it returns whether it was accepted.
struct Reader<F> {
    container: Container,
    good: Vec<Vec<u8>>,
    read: F,
}

impl<F: FnMut(&[u8]) -> Result<bool, String>> Target for Reader<F> {
    fn container(&self) -> Container {
        self.container
    }

    fn good(&self) -> &[Vec<u8>] {
        &self.good
    }

    fn read(&mut self, input: &[u8]) -> Result<bool, String> {
        (self.read)(input)
    }
}

/// A target of texts.
fn text(good: &[&str], mut read: impl FnMut(&str) -> Result<bool, String> + 'static) -> Box<dyn Target> {
    let good = good.iter().map(|text| text.as_bytes().to_vec()).collect();
    // Every reader of texts reads UTF-8 first.
    let read = move |input: &[u8]| std::str::from_utf8(input).map_or(Ok(false), &mut read);
    Box::new(Reader { container: Container::Text, good, read })
}

const NUMBERS: &str = "target = \"b\"\ndelimiter = \";\"\nheader = true\n[[columns]]\nnames = [\"a\", \"c\"]\ntype = \"number\"\ncenter = 1.0\n\
                       scale = 2.0\nmissing = 0.0\n[[columns]]\nname = \"b\"\ntype = \"category\"\nvalues = [\"x\", \"y\"]\n";
const TEXTS: &str = "target = \"b\"\n[[columns]]\nname = \"a\"\ntype = \"text\"\ntokenizer = \"bytes\"\nmax_length = 8\ntruncation = \"middle\"\n\
                     [[columns]]\nname = \"c\"\ntype = \"ignore\"\n[[columns]]\nname = \"b\"\ntype = \"category\"\nvalues = [\"x\", \"y\"]\n";

fn schema() -> Box<dyn Target> {
    let folder = Folder::new("fuzz-schema");
    let (table, schema) = (folder.file("t.csv"), folder.file("schema.toml"));
    fs::write(&table, "a;b;c\n1;x;2\n3;y;4\n").unwrap();
    text(&[NUMBERS, TEXTS], move |text| {
        let Ok(parsed) = Schema::parse("schema.toml", text) else { return Ok(false) };
        if parsed.features() == 0 && matches!(parsed.encoder(), Ok(None)) {
            return Err("a schema without features was accepted".to_owned());
        }
        fs::write(folder.file("schema.toml"), text).unwrap();
        let _ = read(&Source { path: table.clone(), schema: Some(schema.clone()), ..Source::default() });
        let written = toml::to_string(&parsed).unwrap();
        match Schema::parse("schema.toml", &written) {
            Ok(_) => Ok(true),
            Err(error) => Err(format!("the schema as it is written is refused: {error}\n{written}")),
        }
    })
}

fn tokenizer() -> Box<dyn Target> {
    let folder = Folder::new("fuzz-tokenizer");
    let path = folder.file("tokenizer.json").display().to_string();
    let good = [
        include_str!("../../../data/tests/fixtures/wordpiece.json"),
        include_str!("../../../data/tests/fixtures/byte_level.json"),
    ];
    text(&good, move |text| {
        fs::write(folder.file("tokenizer.json"), text).unwrap();
        let Ok(encoder) = TextEncoder::new(&path, 8) else { return Ok(false) };
        for text in
            [Text::One("A good film."), Text::Pair("who", "é\u{13080}"), Text::Prompt("a"), Text::One("")]
        {
            let Ok(tokens) = encoder.encode(text) else { continue };
            if tokens.len() > 8 || tokens.iter().any(|&token| token as usize >= encoder.vocabulary()) {
                return Err(format!("tokens beyond the vocabulary or the length: {tokens:?}"));
            }
            let _ = encoder.decode(&tokens);
        }
        Ok(true)
    })
}

/// A plan of each kind, small enough to be priced quickly.
const PLANS: [&str; 6] = [
    r#"[{"noise_multiplier":1.1,"sample_rate":0.01,"steps":100}]"#,
    r#"[{"noise_multiplier":[1.5,5.0],"sample_rate":0.05,"max_batch_size":90,"population":1000,"steps":20}]"#,
    r#"[{"sampling":"full-batch","noise_multiplier":3.0,"steps":2},{"noise_multiplier":1.1,"sample_rate":0.5,"steps":3}]"#,
    r#"[{"sampling":"fixed-size","noise_multiplier":2.0,"batch_size":10,"population":1000,"steps":5}]"#,
    r#"[{"sampling":"rotating","noise_multiplier":4,"sample_rate":0.5,"groups":4,"steps":8}]"#,
    r#"[{"sampling":"stateful","noise_multiplier":4,"sample_rate":0.5,"later_shift":2.5,"steps":8}]"#,
];

fn plan() -> Box<dyn Target> {
    text(&PLANS, |text| {
        let Ok(plan) = serde_json::from_str::<Plan>(text) else { return Ok(false) };
        let written = serde_json::to_string(&plan).unwrap();
        if serde_json::from_str::<Plan>(&written).ok().as_ref() != Some(&plan) {
            return Err(format!("the plan as it is written is another one: {written}"));
        }
        let _ = (plan.steps(), plan.first(7), plan.relation(), plan.scaled(2.0));
        Ok(true)
    })
}

fn plan_price() -> Box<dyn Target> {
    let delta = Delta::new(1e-5).unwrap();
    text(&PLANS, move |text| {
        let Ok(plan) = serde_json::from_str::<Plan>(text) else { return Ok(false) };
        let mut priced = false;
        for accountant in Accountant::ALL {
            if let Ok(guarantee) = accountant.price(&plan, delta) {
                if !(guarantee.epsilon.get() >= 0.0) {
                    return Err(format!("the price is {:?}", guarantee.epsilon));
                }
                priced = true;
            }
        }
        Ok(priced)
    })
}

const SETTINGS: [&str; 3] = [
    "data = \"mushroom\"\nmodel = \"mlp\"\nhidden = [8, 4]\nalgorithm = \"dp-sgd\"\nepsilon = 2.0\ndelta = 1e-5\nbatch_size = 256\nepochs = 3.0\n\
     learning_rate = 0.5\noptimizer = \"adam\"\naverage = 0.99\nclipping = \"flat\"\nmax_grad_norm = 1.0\n",
    "algorithm = \"dynamic,mu_schedule=0:1/1:2\"\nnoise-multiplier = 1.5\nsteps = 20\nsampling = \"poisson\"\nmax_batch_size = 700\n\
     accountant = \"rdp\"\nschedule = \"cosine\"\ncheckpoint_seconds = 5\ntest_fraction = 0.2\nsplit_seed = 3\nseed = 1\n",
    "algorithm = \"dice\"\nmodel = \"logistic\"\nloss = \"hinge\"\nepsilon = 1\nbatch_size = 64\nsteps = 9\n",
];

fn settings() -> Box<dyn Target> {
    let mushroom = embedded::mushroom().unwrap();
    let data = DataDescription::in_memory(&Settings::default(), &mushroom, None).unwrap();
    text(&SETTINGS, move |text| {
        let Ok(settings) = Settings::parse(text) else { return Ok(false) };
        let written = settings.to_toml();
        match Settings::parse(&written) {
            Ok(again) if again.to_toml() == written => {}
            other => {
                return Err(format!("the settings as they are written are read as {other:?}\n{written}"));
            }
        }
        Ok(check(&settings).is_ok() && resolve(&settings, &data).is_ok())
    })
}

fn settings_price() -> Box<dyn Target> {
    let mushroom = embedded::mushroom().unwrap();
    let data = DataDescription::in_memory(&Settings::default(), &mushroom, None).unwrap();
    text(&SETTINGS, move |text| {
        let Ok(settings) = Settings::parse(text) else { return Ok(false) };
        // The default accountant takes a minute for plans of 1e11 steps at an epsilon of 1e12.
        let settings = Settings { accountant: Some(Accountant::Rdp), ..settings };
        let Ok(priced) = resolve(&settings, &data).and_then(|resolved| price(resolved, None)) else {
            return Ok(false);
        };
        let (budget, guarantee) = (settings.epsilon, priced.terms.guarantee());
        match (budget, guarantee) {
            (Some(budget), Some(guarantee))
                if !(guarantee.epsilon <= budget) && priced.resolved.accountant.proves() =>
            {
                Err(format!("the price is {:?}, the budget {budget:?}", guarantee.epsilon))
            }
            _ => Ok(true),
        }
    })
}

fn algorithm() -> Box<dyn Target> {
    let names: Vec<String> =
        AlgorithmConfig::all().iter().map(|known| known.about().name.to_owned()).collect();
    let mut good: Vec<&str> = names.iter().map(String::as_str).collect();
    good.extend(["dynamic,mu_schedule=0:1/0.5:2/1:3", "dc-sgd-p,percentile=0.3,bins=10", "dp-c4,routine=4"]);
    text(&good, |text| Ok(parse_algorithm(text).is_ok()))
}

/// Models with options, and the records that they read.
const NAMED: [(&str, Shape); 7] = [
    ("mlp,hidden=8x4", Shape::Features(5)),
    ("mnist-cnn", Shape::Image { channels: 1, height: 28, width: 28 }),
    ("resnet20", Shape::Image { channels: 3, height: 32, width: 32 }),
    ("vit-tiny, patch=8, depth=1", Shape::Image { channels: 3, height: 16, width: 16 }),
    ("lstm", Shape::Tokens { steps: 6, vocabulary: 20 }),
    ("embedding-mlp", Shape::Tokens { steps: 6, vocabulary: 20 }),
    ("gpt,depth=1,width=16,heads=2", Shape::Tokens { steps: 6, vocabulary: 20 }),
];

/// The network of a model for records of this shape, if there is one.
fn chosen(name: &str, input: Shape) -> Option<Network> {
    let classes =
        if name.starts_with("gpt") { Vec::new() } else { ["0", "1", "2"].map(str::to_owned).to_vec() };
    let facts = DataFacts {
        input,
        classes,
        observed_classes: false,
        numbers: Vec::new(),
        encoding: Encoding::Bytes,
        normalisation: Vec::new(),
        test_records: 0,
        unit: None,
        preparation: None,
    };
    ResolvedModel::choose(name, None, &facts).ok()?.network().ok()
}

fn model_name() -> Box<dyn Target> {
    text(&NAMED.map(|(name, _)| name), |text| {
        let _ = parse_model(text);
        Ok(NAMED.iter().any(|(_, input)| chosen(text, *input).is_some()))
    })
}

fn schedule_file() -> Box<dyn Target> {
    let folder = Folder::new("fuzz-schedule");
    text(&["1\n0.5\n# comment\n\n2.5\n", "1e-3\n1000\n"], move |text| {
        let path = folder.file("factors.txt");
        fs::write(&path, text).unwrap();
        Ok(parse_algorithm(&format!("dynamic,mu_schedule=@{}", path.display())).is_ok())
    })
}

fn network() -> Box<dyn Target> {
    let good =
        NAMED.map(|(name, input)| toml::to_string(chosen(name, input).unwrap().description()).unwrap());
    text(&good.each_ref().map(String::as_str), |text| {
        let Ok(description) = toml::from_str::<Description>(text) else { return Ok(false) };
        let Ok(network) = Network::new(&description) else { return Ok(false) };
        let _ = (network.operations(), network.input(), network.output(), description.split_frozen());
        // Larger networks are refused by the memory that they need, before parameters are made.
        if network.layout().len() < 100_000 && network.init(0).values().iter().any(|value| !value.is_finite())
        {
            return Err("the initial parameters are not finite".to_owned());
        }
        Ok(true)
    })
}

fn grid() -> Box<dyn Target> {
    let folder = Folder::new("fuzz-grid");
    let good = [
        "learning_rate = [10, 20, 40]\n[dp-c4]\nmax_grad_norm = [0.5, 1]\nroutine = [1, 4]\n",
        "hidden = [[8], [4, 4]]\noptimizer = [\"sgd\", \"adam\"]\nsteps = [10, 20]\n",
    ];
    text(&good, move |text| {
        let path = folder.file("grid.toml");
        fs::write(&path, text).unwrap();
        let Ok(grid) = Grid::read(&path) else { return Ok(false) };
        let names = ["dp-sgd".to_owned(), "dp-c4".to_owned()];
        let checked = grid.check(&names).is_ok();
        Ok(names.iter().all(|name| grid.combinations(name, &Settings::default()).is_ok()) && checked)
    })
}

const MODELS: [&str; 5] = ["bert", "distilbert", "gpt2", "roberta", "vit"];

fn fixture(model: &str, file: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/fixtures/pretrained");
    fs::read(folder.join(model).join(file)).unwrap()
}

/// Opens a pre-trained model and builds a network on it.
fn opens(folder: &Path) -> bool {
    Pretrained::open(folder).is_ok_and(|model| model.input(6).is_ok())
}

fn pretrained_config() -> Box<dyn Target> {
    let folder = Folder::new("fuzz-pretrained-config");
    for model in MODELS {
        fs::create_dir_all(folder.file(model)).unwrap();
        fs::write(folder.file(model).join("model.safetensors"), fixture(model, "model.safetensors")).unwrap();
    }
    let good: Vec<String> =
        MODELS.iter().map(|model| String::from_utf8(fixture(model, "config.json")).unwrap()).collect();
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    text(&good, move |text| {
        let model = MODELS.iter().find(|model| text.contains(&format!("\"{model}\""))).unwrap_or(&"bert");
        fs::write(folder.file(model).join("config.json"), text).unwrap();
        Ok(opens(&folder.file(model)))
    })
}

fn pretrained_weights() -> Box<dyn Target> {
    let folder = Folder::new("fuzz-pretrained-weights");
    fs::write(folder.file("config.json"), fixture("bert", "config.json")).unwrap();
    let good = vec![fixture("bert", "model.safetensors")];
    let read = move |input: &[u8]| {
        fs::write(folder.file("model.safetensors"), input).unwrap();
        Ok(opens(folder.file("config.json").parent().unwrap()))
    };
    Box::new(Reader { container: Container::Safetensors, good, read })
}
