//! GPT-2 (Radford et al. 2019), with the head of `GPT2ForSequenceClassification` on the last token, or as `GPT2LMHeadModel`.

use super::architecture::{Architecture, BlockNames, Input, Names, Pooling, Sizes};
use super::config::Config;
use crate::description::LayerDescription;
use crate::error::NetworkError;
use crate::layers::{Embedding, Linear, Positions};

const BLOCK: BlockNames = BlockNames {
    attention: "attn",
    first_norm: "ln_1",
    up: "mlp.c_fc",
    down: "mlp.c_proj",
    second_norm: "ln_2",
};

pub(super) fn architecture(config: &Config) -> Result<Architecture, NetworkError> {
    config.only("scale_attn_weights", &true.into())?;
    config.only("scale_attn_by_inverse_layer_idx", &false.into())?;
    config.only("add_cross_attention", &false.into())?;
    let width = config.size("n_embd", Some(768))?;
    let sizes = Sizes {
        width,
        heads: config.size("n_head", Some(12))?,
        hidden: config.size("n_inner", Some(4 * width))?,
        activation: config.activation("activation_function", "gelu_new")?,
        epsilon: config.epsilon("layer_norm_epsilon", 1e-5)?,
        causal: true,
    };
    let layers = config.layers("n_layer", 12)?;
    let positions = config.size("n_positions", Some(1024))?;
    Ok(Architecture {
        input: Input::Tokens { vocabulary: config.size("vocab_size", None)?, most_steps: positions },
        embeddings: vec![
            LayerDescription::named("wte", Embedding { width }),
            LayerDescription::named("wpe", Positions),
        ],
        blocks: (0..layers).map(|layer| sizes.pre_norm(&format!("h.{layer}"), &BLOCK)).collect(),
        last: vec![LayerDescription::named("ln_f", sizes.norm())],
        pooling: Pooling::Last,
        embedding: Pooling::Mean,
        pooler: Vec::new(),
        head: vec![LayerDescription::named("score", Linear { bias: false, ..Linear::new(1) })],
        names: Names {
            prefix: "transformer.",
            classes: ["GPT2Model", "GPT2ForSequenceClassification"],
            language_model: Some("GPT2LMHeadModel"),
            attention: "attn",
            projections: &["attn.c_attn"],
            output: "attn.c_proj",
            transposed: Some(".c_"),
            tables: vec![("wpe.weight", 0, positions)],
            shapes: Vec::new(),
            renamed: &[],
            modules: &[],
            ignored: &["lm_head.", ".attn.bias", ".attn.masked_bias"],
        },
    })
}
