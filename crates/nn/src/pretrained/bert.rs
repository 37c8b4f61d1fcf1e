//! BERT (Devlin et al. 2019), with the pooler and the classifier of `BertForSequenceClassification`.

use serde_json::Value;

use super::architecture::{Architecture, BlockNames, Input, Names, Pooling, Sizes};
use super::config::Config;
use crate::description::LayerDescription;
use crate::error::NetworkError;
use crate::layers::{Embedding, Linear, Positions, Segments, Tanh};

const BLOCK: BlockNames = BlockNames {
    attention: "attention",
    first_norm: "attention.output.LayerNorm",
    up: "intermediate.dense",
    down: "output.dense",
    second_norm: "output.LayerNorm",
};

pub(super) fn architecture(config: &Config) -> Result<Architecture, NetworkError> {
    let separator = match config.size("type_vocab_size", Some(2))? {
        1 => None,
        _ => config.special_token("[SEP]")?,
    };
    let mut bert = encoder(config, separator, 0)?;
    let width = config.size("hidden_size", Some(768))?;
    bert.pooler = vec![LayerDescription::named("pooler.dense", Linear::new(width)), Tanh.into()];
    bert.head = vec![LayerDescription::named("classifier", Linear::new(1))];
    Ok(bert)
}

/// BERT without a head. Positions begin at row `first_position` of their table.
pub(super) fn encoder(
    config: &Config,
    separator: Option<u32>,
    first_position: usize,
) -> Result<Architecture, NetworkError> {
    config.only("position_embedding_type", &"absolute".into())?;
    config.only("is_decoder", &false.into())?;
    config.only("add_cross_attention", &false.into())?;
    config.only("pruned_heads", &Value::Object(serde_json::Map::new()))?;
    let sizes = Sizes {
        width: config.size("hidden_size", Some(768))?,
        heads: config.size("num_attention_heads", Some(12))?,
        hidden: config.size("intermediate_size", Some(3072))?,
        activation: config.activation("hidden_act", "gelu")?,
        epsilon: config.epsilon("layer_norm_eps", 1e-12)?,
        causal: false,
    };
    let layers = config.layers("num_hidden_layers", 12)?;
    let positions = config.size("max_position_embeddings", Some(512))?;
    let Some(most_steps) = positions.checked_sub(first_position).filter(|steps| *steps > 0) else {
        return Err(config.error(&format!(
            "max_position_embeddings must be more than {first_position}, where positions begin, got {positions}"
        )));
    };
    let segments = config.size("type_vocab_size", Some(2))?;
    Ok(Architecture {
        input: Input::Tokens { vocabulary: config.size("vocab_size", None)?, most_steps },
        embeddings: vec![
            LayerDescription::named("embeddings.word_embeddings", Embedding { width: sizes.width }),
            LayerDescription::named("embeddings.token_type_embeddings", Segments { separator }),
            LayerDescription::named("embeddings.position_embeddings", Positions),
            LayerDescription::named("embeddings.LayerNorm", sizes.norm()),
        ],
        blocks: (0..layers).map(|layer| sizes.post_norm(&format!("encoder.layer.{layer}"), &BLOCK)).collect(),
        last: Vec::new(),
        pooling: Pooling::First,
        embedding: Pooling::Mean,
        pooler: Vec::new(),
        head: Vec::new(),
        names: Names {
            prefix: "bert.",
            classes: ["BertModel", "BertForSequenceClassification"],
            language_model: None,
            attention: "attention",
            projections: &["attention.self.query", "attention.self.key", "attention.self.value"],
            output: "attention.output.dense",
            transposed: None,
            tables: vec![
                ("embeddings.position_embeddings.weight", first_position, positions),
                ("embeddings.token_type_embeddings.weight", 0, segments),
            ],
            shapes: Vec::new(),
            renamed: &[],
            modules: &[],
            ignored: &["cls.", "lm_head.", "embeddings.position_ids", "embeddings.token_type_ids"],
        },
    })
}
