//! RoBERTa (Liu et al. 2019): BERT with different positions and the head of `RobertaForSequenceClassification`.

use super::architecture::Architecture;
use super::bert;
use super::config::Config;
use crate::description::LayerDescription;
use crate::error::NetworkError;
use crate::layers::{Linear, Tanh};

pub(super) fn architecture(config: &Config) -> Result<Architecture, NetworkError> {
    // The rows up to that of the padding token are not positions.
    let mut roberta = bert::encoder(config, None, config.token("pad_token_id", 1)? + 1)?;
    let width = config.size("hidden_size", Some(768))?;
    roberta.head = vec![
        LayerDescription::named("classifier.dense", Linear::new(width)),
        Tanh.into(),
        LayerDescription::named("classifier.out_proj", Linear::new(1)),
    ];
    roberta.names.prefix = "roberta.";
    roberta.names.classes = ["RobertaModel", "RobertaForSequenceClassification"];
    roberta.names.ignored = &["lm_head.", "pooler.", "embeddings.position_ids", "embeddings.token_type_ids"];
    Ok(roberta)
}
