//! Runs and tunes pre-trained models, without noise. `tests/fixtures/check_pretrained.py` compares the results with `transformers`.
//!
//! ```sh
//! cargo run --release -p sordino-nn --example pretrained -- embed FOLDER RECORDS.json
//! cargo run --release -p sordino-nn --example pretrained -- tune FOLDER RECORDS.json lora,rank=8 OUT
//! cargo run --release -p sordino-nn --example pretrained -- language FOLDER RECORDS.json lora,rank=8 OUT
//! ```
//!
//! The records are `{"tokens": [[..], ..], "targets": [..]}`, or `images` in place of `tokens`. The first command prints an embedding of each
//! record. The others tune a classifier or a language model by ten steps of gradient descent, write `OUT/merged` and, for LoRA, `OUT/adapter`,
//! and print the outputs.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use serde::Deserialize;
use sordino_nn::pretrained::{Export, Pretrained, TrainedPart};
use sordino_nn::{Engine, Inputs, Loss, Network, Pass, Targets};

#[derive(Deserialize)]
struct Records {
    #[serde(default)]
    tokens: Vec<Vec<u32>>,
    #[serde(default)]
    images: Vec<Vec<f32>>,
    #[serde(default)]
    targets: Vec<u32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (outputs, width) = match arguments[..] {
        ["embed", folder, records] => embed(folder, &read(records)?)?,
        [task @ ("tune" | "language"), folder, records, part, out] => {
            tune(task == "language", folder, &read(records)?, part.parse()?, Path::new(out))?
        }
        _ => {
            return Err(
                "usage: embed FOLDER RECORDS.json, or tune|language FOLDER RECORDS.json PART OUT".into()
            );
        }
    };
    let rows: Vec<&[f32]> = outputs.chunks(width).collect();
    println!("{}", serde_json::to_string(&rows)?);
    Ok(())
}

fn read(path: &str) -> Result<Records, Box<dyn Error>> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

impl Records {
    fn length(&self) -> usize {
        self.tokens.iter().map(Vec::len).max().unwrap_or(1)
    }

    /// The values of all records, one after another.
    fn flat(&self) -> (Vec<u32>, Vec<usize>, Vec<f32>) {
        let mut starts = vec![0];
        let mut end = 0;
        for tokens in &self.tokens {
            end += tokens.len();
            starts.push(end);
        }
        (self.tokens.concat(), starts, self.images.concat())
    }
}

fn embed(folder: &str, records: &Records) -> Result<(Vec<f32>, usize), Box<dyn Error>> {
    let pretrained = Pretrained::open(Path::new(folder))?;
    let network = Network::new(&pretrained.encoder(records.length())?)?;
    let params = pretrained.params(&network, 1)?;
    let mut engine = Engine::without_loss(network)?;
    let (tokens, starts, values) = records.flat();
    let inputs = match records.images.is_empty() {
        true => Inputs::Tokens { tokens: &tokens, starts: &starts },
        false => Inputs::Dense(&values),
    };
    let inputs = engine.unlabelled(inputs)?;
    let all: Vec<usize> = (0..inputs.len()).collect();
    Ok((engine.outputs(&params, &inputs, &all)?, engine.network().outputs()))
}

fn tune(
    language: bool,
    folder: &str,
    records: &Records,
    part: TrainedPart,
    out: &Path,
) -> Result<(Vec<f32>, usize), Box<dyn Error>> {
    let pretrained = Pretrained::open(Path::new(folder))?;
    let classes = 1 + records.targets.iter().max().copied().unwrap_or(0) as usize;
    let from = vec![1; records.tokens.len()];
    let (description, loss, targets) = match language {
        true => {
            let description = pretrained.language_model(records.length(), part)?;
            (description, Loss::NextToken, Targets::NextTokens { from: &from })
        }
        false => {
            let description = pretrained.classifier(records.length(), classes, part)?;
            (description, Loss::cross_entropy(), Targets::Classes(&records.targets))
        }
    };
    let network = Network::new(&description)?;
    let mut params = pretrained.params(&network, 1)?;
    let mut engine = Engine::new(network, loss)?;
    let (tokens, starts, values) = records.flat();
    let inputs = match records.images.is_empty() {
        true => Inputs::Tokens { tokens: &tokens, starts: &starts },
        false => Inputs::Dense(&values),
    };
    let labelled = engine.records(inputs, targets)?;
    let all: Vec<usize> = (0..labelled.len()).collect();
    for _ in 0..10 {
        let mut sum = [vec![0.0; params.values().len()]];
        let outcome = engine.pass(&Pass::new(&params, &labelled, &all), &mut sum)?;
        eprintln!("loss {:.4}", outcome.losses.iter().sum::<f64>() / all.len() as f64);
        for (value, gradient) in params.values_mut().iter_mut().zip(&sum[0]) {
            *value -= (0.1 / all.len() as f64 * gradient) as f32;
        }
    }
    let network = engine.network().clone();
    pretrained.export(&network, &params, &out.join("merged"), Export::Merged)?;
    if let TrainedPart::Lora { .. } = part {
        pretrained.export(&network, &params, &out.join("adapter"), Export::Adapter)?;
    }
    let inputs = engine.unlabelled(inputs)?;
    Ok((engine.outputs(&params, &inputs, &all)?, network.outputs()))
}
