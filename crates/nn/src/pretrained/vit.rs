//! The vision transformer (Dosovitskiy et al. 2021), with the head of `ViTForImageClassification` on the class token.

use super::architecture::{Architecture, BlockNames, Input, Names, Pooling, Sizes};
use super::config::Config;
use crate::description::LayerDescription;
use crate::error::NetworkError;
use crate::layers::{ClassToken, Conv2d, ImageToSequence, Linear, Positions};

const BLOCK: BlockNames = BlockNames {
    attention: "attention",
    first_norm: "layernorm_before",
    up: "intermediate.dense",
    down: "output.dense",
    second_norm: "layernorm_after",
};

pub(super) fn architecture(config: &Config) -> Result<Architecture, NetworkError> {
    config.only("qkv_bias", &true.into())?;
    let width = config.size("hidden_size", Some(768))?;
    let sizes = Sizes {
        width,
        heads: config.size("num_attention_heads", Some(12))?,
        hidden: config.size("intermediate_size", Some(3072))?,
        activation: config.activation("hidden_act", "gelu")?,
        epsilon: config.epsilon("layer_norm_eps", 1e-12)?,
        causal: false,
    };
    let layers = config.layers("num_hidden_layers", 12)?;
    let (side, patch) = (config.size("image_size", Some(224))?, config.size("patch_size", Some(16))?);
    if side % patch != 0 {
        return Err(config.error(&format!("patch_size must divide image_size {side}, got {patch}")));
    }
    let positions = (side / patch) * (side / patch) + 1;
    Ok(Architecture {
        input: Input::Image { channels: config.size("num_channels", Some(3))?, side },
        embeddings: vec![
            LayerDescription::named(
                "embeddings.patch_embeddings.projection",
                Conv2d::new(width, patch, patch, 0),
            ),
            ImageToSequence.into(),
            LayerDescription::named("embeddings.cls_token", ClassToken),
            LayerDescription::named("embeddings.position_embeddings", Positions),
        ],
        blocks: (0..layers).map(|layer| sizes.pre_norm(&format!("encoder.layer.{layer}"), &BLOCK)).collect(),
        last: vec![LayerDescription::named("layernorm", sizes.norm())],
        pooling: Pooling::First,
        embedding: Pooling::First,
        pooler: Vec::new(),
        head: vec![LayerDescription::named("classifier", Linear::new(1))],
        names: Names {
            prefix: "vit.",
            classes: ["ViTModel", "ViTForImageClassification"],
            language_model: None,
            attention: "attention",
            projections: &[
                "attention.attention.query",
                "attention.attention.key",
                "attention.attention.value",
            ],
            output: "attention.output.dense",
            transposed: None,
            tables: Vec::new(),
            shapes: vec![
                ("embeddings.cls_token.weight", vec![1, 1, width]),
                ("embeddings.position_embeddings.weight", vec![1, positions, width]),
            ],
            renamed: &[
                ("embeddings.cls_token.weight", "embeddings.cls_token"),
                ("embeddings.position_embeddings.weight", "embeddings.position_embeddings"),
            ],
            modules: &[
                ("encoder.layer.", "layers."),
                ("attention.attention.query", "attention.q_proj"),
                ("attention.attention.value", "attention.v_proj"),
            ],
            ignored: &["pooler.", "decoder.", "embeddings.mask_token"],
        },
    })
}
