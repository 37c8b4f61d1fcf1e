//! `DistilBERT` (Sanh et al. 2019), with the head of `DistilBertForSequenceClassification`.

use super::architecture::{Architecture, BlockNames, Input, Names, Pooling, Sizes};
use super::config::Config;
use crate::description::LayerDescription;
use crate::error::NetworkError;
use crate::layers::{Embedding, Linear, Positions, Relu};

const BLOCK: BlockNames = BlockNames {
    attention: "attention",
    first_norm: "sa_layer_norm",
    up: "ffn.lin1",
    down: "ffn.lin2",
    second_norm: "output_layer_norm",
};

pub(super) fn architecture(config: &Config) -> Result<Architecture, NetworkError> {
    let width = config.size("dim", Some(768))?;
    let sizes = Sizes {
        width,
        heads: config.size("n_heads", Some(12))?,
        hidden: config.size("hidden_dim", Some(3072))?,
        activation: config.activation("activation", "gelu")?,
        epsilon: 1e-12,
        causal: false,
    };
    let layers = config.layers("n_layers", 6)?;
    let positions = config.size("max_position_embeddings", Some(512))?;
    Ok(Architecture {
        input: Input::Tokens { vocabulary: config.size("vocab_size", None)?, most_steps: positions },
        embeddings: vec![
            LayerDescription::named("embeddings.word_embeddings", Embedding { width }),
            LayerDescription::named("embeddings.position_embeddings", Positions),
            LayerDescription::named("embeddings.LayerNorm", sizes.norm()),
        ],
        blocks: (0..layers)
            .map(|layer| sizes.post_norm(&format!("transformer.layer.{layer}"), &BLOCK))
            .collect(),
        last: Vec::new(),
        pooling: Pooling::First,
        embedding: Pooling::Mean,
        pooler: Vec::new(),
        head: vec![
            LayerDescription::named("pre_classifier", Linear::new(width)),
            Relu.into(),
            LayerDescription::named("classifier", Linear::new(1)),
        ],
        names: Names {
            prefix: "distilbert.",
            classes: ["DistilBertModel", "DistilBertForSequenceClassification"],
            language_model: None,
            attention: "attention",
            projections: &["attention.q_lin", "attention.k_lin", "attention.v_lin"],
            output: "attention.out_lin",
            transposed: None,
            tables: vec![("embeddings.position_embeddings.weight", 0, positions)],
            shapes: Vec::new(),
            renamed: &[],
            modules: &[],
            ignored: &[
                "vocab_transform.",
                "vocab_layer_norm.",
                "vocab_projector.",
                "embeddings.position_ids",
            ],
        },
    })
}
