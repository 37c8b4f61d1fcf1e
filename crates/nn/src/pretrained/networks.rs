//! The networks of a pre-trained model: with a head, as a language model, and as an encoder.

use super::architecture::Architecture;
use super::{Pretrained, TrainedPart};
use crate::description::{Description, LayerDescription};
use crate::error::NetworkError;
use crate::layers::{Layer, Linear, Lora, TiedOutput};
use crate::network::Network;

impl Pretrained {
    /// The network for classification or regression: the model with a head. If the [pooling](Self::with_pooling) is that of the model's own
    /// head, the head has the layers and names of `transformers`; otherwise it is one linear layer called `head`.
    ///
    /// There is no dropout. The pooler of BERT is frozen with the layers before it. If the checkpoint has no pooler, a new one is part of
    /// the head.
    ///
    /// # Errors
    /// If the model has fewer positions or layers, or the number of outputs or the rank is not permitted.
    pub fn classifier(
        &self,
        max_length: usize,
        outputs: usize,
        part: TrainedPart,
    ) -> Result<Description, NetworkError> {
        let model = &self.architecture;
        let pooling = self.pooling.unwrap_or(model.pooling);
        let (mut pooler, mut head) =
            (Vec::new(), vec![LayerDescription::named("head", Linear::new(outputs))]);
        if pooling == model.pooling {
            (pooler, head) = (model.pooler.clone(), model.head.clone());
            if let Some(LayerDescription { layer: Layer::Linear(linear), .. }) = head.last_mut() {
                linear.outputs = outputs;
            }
        }
        if matches!(part, TrainedPart::Head | TrainedPart::Lora { .. }) && self.has_pooler() {
            freeze(&mut pooler);
        }
        let mut description = Description::new(self.input(max_length)?);
        description.layers = pooling.after(model.groups(part)?);
        description.layers.extend(pooler.into_iter().chain(head));
        Network::new(&description)?;
        Ok(description)
    }

    /// The network that predicts the next token: its last layer has an output for each token at each step, and its weights are those of the
    /// embedding. Its loss is [`Loss::NextToken`](crate::Loss::NextToken).
    ///
    /// # Errors
    /// If the model is not a language model with tied weights, has fewer positions or layers, or the trained part is `head`, which a
    /// language model does not have.
    pub fn language_model(&self, max_length: usize, part: TrainedPart) -> Result<Description, NetworkError> {
        if self.architecture.names.language_model.is_none() {
            return Err(self.config.error(&format!(
                "a {} does not predict the next token; use a model of the kind gpt2",
                self.kind
            )));
        }
        self.config.only("tie_word_embeddings", &true.into())?;
        if part == TrainedPart::Head {
            return Err(NetworkError::Description(
                "a language model has no head of its own; train lora, last or all".to_owned(),
            ));
        }
        let mut description = Description::new(self.input(max_length)?);
        description.layers = self.architecture.groups(part)?.into_iter().flatten().collect();
        let description = description.then(TiedOutput);
        Network::new(&description)?;
        Ok(description)
    }

    /// The network without a head: its output is one vector for each record, and all layers are frozen.
    ///
    /// # Errors
    /// If the model has fewer positions.
    pub fn encoder(&self, max_length: usize) -> Result<Description, NetworkError> {
        let mut description = Description::new(self.input(max_length)?);
        let pooling = self.pooling.unwrap_or(self.architecture.embedding);
        description.layers = pooling.after(self.architecture.groups(TrainedPart::Head)?);
        Ok(description)
    }
}

impl Architecture {
    /// The embeddings, each transformer layer, and the layers after the last one, with adapters if there are any. Layers that are not trained
    /// are frozen.
    pub(super) fn groups(&self, part: TrainedPart) -> Result<Vec<Vec<LayerDescription>>, NetworkError> {
        let mut groups = vec![self.embeddings.clone()];
        groups.extend(self.blocks.iter().cloned());
        groups.push(self.last.clone());
        let frozen = match part {
            TrainedPart::Head | TrainedPart::Lora { .. } => groups.len(),
            TrainedPart::Last { layers } if (1..=self.blocks.len()).contains(&layers) => {
                1 + self.blocks.len() - layers
            }
            TrainedPart::Last { layers } => {
                return Err(NetworkError::Description(format!(
                    "the number of last layers must be 1 to {}, the layers of this model, got {layers}",
                    self.blocks.len()
                )));
            }
            TrainedPart::All => 0,
        };
        if let TrainedPart::Lora { rank, alpha } = part {
            let lora = Lora { rank, alpha, joint: self.names.projections.len() == 1 };
            groups.iter_mut().for_each(|group| adapt(group, lora));
        }
        groups[..frozen].iter_mut().for_each(|group| freeze(group));
        Ok(groups)
    }
}

/// Excludes layers from training, except for adapters.
fn freeze(layers: &mut [LayerDescription]) {
    for described in layers {
        match &mut described.layer {
            Layer::Residual(block) => freeze(&mut block.body),
            Layer::Attention(attention) if attention.lora.is_some() => {}
            // Layers without parameters are as they are.
            _ => described.frozen = described.name.is_some(),
        }
    }
}

/// Adds adapters to all attention layers.
fn adapt(layers: &mut [LayerDescription], lora: Lora) {
    for described in layers {
        match &mut described.layer {
            Layer::Residual(block) => adapt(&mut block.body, lora),
            Layer::Attention(attention) => attention.lora = Some(lora),
            _ => {}
        }
    }
}
