//! A public network that is applied once to every record, before training.

use sordino_data::Dataset;
use sordino_nn::{Description, Engine, Inputs, Network, NetworkError, Params, Shape};

use crate::TrainError;

/// A public network with fixed parameters. The trained model reads its outputs instead of the records.
///
/// **Guarantees.** The outputs for a record depend only on that record, bit for bit, and the network is public. So two data sets that
/// differ in one record still differ in one record after encoding, and the guarantee for training on the outputs holds for the records. The
/// outputs of private records are as private as the records; they stay in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoder {
    description: Description,
    params: Params,
    input: Shape,
    output: Shape,
}

/// The number of records that are encoded at a time.
const BLOCK: usize = 4096;

impl Encoder {
    /// A network that ends in a vector or in a sequence, with its parameters.
    ///
    /// # Errors
    /// A network that cannot be built, or parameters of another network.
    pub fn new(description: Description, params: Params) -> Result<Self, TrainError> {
        let network = Network::new(&description)?;
        if network.layout() != params.layout() {
            let problem = "the parameters of the encoder belong to another network".to_owned();
            return Err(NetworkError::Parameters(problem).into());
        }
        Ok(Self { input: network.input(), output: network.output(), description, params })
    }

    /// Its network.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The shape of the records that it reads.
    pub fn input(&self) -> Shape {
        self.input
    }

    /// The shape of the outputs, which the trained model reads.
    pub fn output(&self) -> Shape {
        self.output
    }

    /// Encodes all records. Labels do not change.
    ///
    /// # Errors
    /// Records of another shape.
    pub fn encode(&self, data: &Dataset) -> Result<Dataset, TrainError> {
        let mut engine = Engine::without_loss(Network::new(&self.description)?)?;
        let inputs = engine.unlabelled(data.inputs())?;
        let lengths = lengths(data.inputs());
        let width = self.output.len() / self.output.steps();
        let (mut values, mut starts) = (Vec::new(), vec![0]);
        for first in (0..data.len()).step_by(BLOCK) {
            // Records of similar length share a chunk, whose length is that of its longest record.
            let mut order: Vec<usize> = (first..data.len().min(first + BLOCK)).collect();
            if let Some(lengths) = &lengths {
                order.sort_by_key(|&record| lengths[record]);
            }
            let (encoded, ends) = engine.sequence_outputs(&self.params, &inputs, &order)?;
            let mut places: Vec<usize> = (0..order.len()).collect();
            places.sort_by_key(|&place| order[place]);
            for place in places {
                values.extend_from_slice(&encoded[ends[place] * width..ends[place + 1] * width]);
                starts.push(values.len() / width);
            }
        }
        let is_sequence = matches!(self.output, Shape::Sequence { .. });
        Ok(data.with_inputs(self.output, values, is_sequence.then_some(starts))?)
    }
}

/// The length of each record, if lengths differ.
fn lengths(inputs: Inputs<'_>) -> Option<Vec<usize>> {
    match inputs {
        Inputs::Tokens { starts, .. } | Inputs::Sequences { starts, .. } => {
            Some(starts.windows(2).map(|pair| pair[1] - pair[0]).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sordino_data::Labels;
    use sordino_nn::{
        LayerDescription, Targets,
        layers::{Attention, Embedding, LayerNorm, Linear, MeanOverSteps, Positions, Residual},
    };

    use super::*;

    fn encoder(pooled: bool) -> Encoder {
        let attention = vec![LayerDescription::named("attention", Attention::new(2))];
        let mut description = Description::new(Shape::Tokens { steps: 9, vocabulary: 20 })
            .named("embedding", Embedding { width: 8 })
            .named("positions", Positions)
            .named("block", Residual::new(attention))
            .named("norm", LayerNorm::default())
            .named("linear", Linear::new(5));
        if pooled {
            description = description.then(MeanOverSteps);
        }
        description.layers.iter_mut().for_each(|layer| layer.frozen = true);
        let params = Network::new(&description).unwrap().init(3);
        Encoder::new(description, params).unwrap()
    }

    /// Of 50 records of lengths 1 to 9, those that are not removed.
    fn data(removed: &[u32]) -> Dataset {
        let (mut tokens, mut starts, mut classes) = (Vec::new(), vec![0], Vec::new());
        for record in (0..50).filter(|record| !removed.contains(record)) {
            tokens.extend((0..1 + record * 5 % 9).map(|step| (record * 7 + step * 3) % 20));
            starts.push(tokens.len());
            classes.push(record % 2);
        }
        Dataset::from_tokens(tokens, starts, 9, 20, Labels::classes(&classes, 2)).unwrap()
    }

    #[test]
    fn outputs_are_those_of_the_network_in_the_order_of_the_records() {
        for pooled in [false, true] {
            let encoder = encoder(pooled);
            let data = data(&[]);
            let encoded = encoder.encode(&data).unwrap();
            assert_eq!((encoded.len(), encoded.shape()), (50, encoder.output()));
            let mut engine = Engine::without_loss(Network::new(&encoder.description).unwrap()).unwrap();
            let inputs = engine.unlabelled(data.inputs()).unwrap();
            let all: Vec<usize> = (0..50).collect();
            let (expected, ends) = engine.sequence_outputs(&encoder.params, &inputs, &all).unwrap();
            match encoded.inputs() {
                Inputs::Dense(values) => assert_eq!(values, expected),
                Inputs::Sequences { values, starts } => {
                    assert_eq!((values, starts), (&expected[..], &ends[..]))
                }
                _ => panic!("values"),
            }
            let (Some(Targets::Classes(before)), Some(Targets::Classes(after))) =
                (data.targets(), encoded.targets())
            else {
                panic!("classes")
            };
            assert_eq!(before, after);
        }
    }

    #[test]
    fn what_a_record_becomes_does_not_depend_on_other_records() {
        let encoder = encoder(true);
        let all = encoder.encode(&data(&[])).unwrap();
        let Inputs::Dense(all) = all.inputs() else { panic!("vectors") };
        // Record 7 alone, and without the record before it.
        for removed in [(0..50).filter(|&record| record != 7).collect::<Vec<_>>(), vec![6]] {
            let place = 7 - removed.iter().filter(|&&record| record < 7).count();
            let part = encoder.encode(&data(&removed)).unwrap();
            let Inputs::Dense(part) = part.inputs() else { panic!("vectors") };
            assert_eq!(part[place * 5..][..5], all[7 * 5..][..5]);
        }
    }
}
