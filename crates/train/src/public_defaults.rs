//! How the records for a public pre-trained model are read if the settings do not say it. What a public model states is public.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sordino_data::{ImageSize, Schema, Source, Unstated};

use crate::{Settings, TrainError};

/// The largest number of tokens of a text, if the model does not have fewer positions.
const MAX_LENGTH: usize = 256;

/// Adds what the public model of the settings states and neither the source nor its schema does: the tokenizer and the length of texts,
/// or the size, the channels and the normalisation of images.
pub(crate) fn with_public_defaults(settings: &Settings, source: Source) -> Result<Source, TrainError> {
    let Some(folder) = public_folder(settings) else { return Ok(source) };
    // A folder without a model is refused when the model is built.
    let Some(config) = read_json(&folder.join("config.json")) else { return Ok(source) };
    let unstated = Unstated::of(&source)?;
    Ok(match config["model_type"].as_str() {
        Some("vit") => with_images(source, unstated, &config, &folder),
        _ => with_texts(source, unstated, &config, &folder),
    })
}

/// The folder of the public model, as an absolute path; none if the settings name no such folder. Unless the settings of the data
/// state otherwise, its tokenizer, or its image size and normalisation, determines how records are read.
pub fn public_folder(settings: &Settings) -> Option<PathBuf> {
    let folder = settings.encoder.clone().or_else(|| settings.model.as_ref().map(PathBuf::from))?;
    folder.join("config.json").is_file().then(|| folder.canonicalize().unwrap_or(folder))
}

fn read_json(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn with_texts(mut source: Source, unstated: Unstated, config: &Value, folder: &Path) -> Source {
    if unstated.tokenizer {
        source.tokenizer = Some(folder.join("tokenizer.json").display().to_string());
    }
    if unstated.max_length {
        source.max_length = Some(positions(config).map_or(MAX_LENGTH, |positions| positions.min(MAX_LENGTH)));
    }
    source
}

/// The number of tokens that the model can read.
fn positions(config: &Value) -> Option<usize> {
    let size = |name: &str| config[name].as_u64().and_then(|size| usize::try_from(size).ok());
    match config["model_type"].as_str() {
        Some("gpt2") => size("n_positions"),
        // Its first two positions are for padding.
        Some("roberta") => size("max_position_embeddings").map(|positions| positions.saturating_sub(2)),
        _ => size("max_position_embeddings"),
    }
}

/// Checks that a file of tokenised records was made with the tokenizer of the public model.
///
/// # Errors
/// Records that were tokenised by a different tokenizer than that of the model.
pub(crate) fn check_tokenizer(settings: &Settings, schema: Option<&Schema>) -> Result<(), TrainError> {
    // A tokenizer or a schema that the user sets is used without this check.
    if settings.tokenizer.is_some() || settings.schema.is_some() {
        return Ok(());
    }
    let (Some(folder), Some(schema)) = (public_folder(settings), schema) else { return Ok(()) };
    let of_model = folder.join("tokenizer.json");
    let Ok(expected) = fs::read(&of_model) else { return Ok(()) };
    if !schema.has_texts() || schema.tokenizer_is(&expected) {
        return Ok(());
    }
    Err(TrainError::refused(
        format!("the records were not tokenised by {}, which the model needs", of_model.display()),
        "convert the records again with {tokenizer} set to this file, or train on the original texts",
    ))
}

fn with_images(mut source: Source, unstated: Unstated, config: &Value, folder: &Path) -> Source {
    let images = &mut source.images;
    let size = |name: &str| config[name].as_u64().and_then(|size| usize::try_from(size).ok());
    if unstated.image_size {
        images.size = size("image_size").and_then(|side| ImageSize::new(side, side).ok());
    }
    if unstated.channels {
        images.channels = Some(size("num_channels").unwrap_or(3));
    }
    let preprocessor = read_json(&folder.join("preprocessor_config.json")).unwrap_or_default();
    let numbers = |name: &str| {
        let numbers = preprocessor[name].as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
        numbers.filter(|numbers| !numbers.is_empty())
    };
    let constants = |name: &str| Some(numbers(name).unwrap_or_else(|| vec![0.5]));
    if unstated.mean {
        images.mean = constants("image_mean");
    }
    if unstated.std {
        images.std = constants("image_std");
    }
    source
}
