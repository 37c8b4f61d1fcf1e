//! Networks of every kind.

use sordino_nn::layers::{
    Attention, ClassToken, Conv2d, FirstStep, Gelu, GlobalAveragePool, GroupNorm, Gru, ImageToSequence,
    LayerNorm, Linear, Lstm, MaxPool, MeanOverSteps, Positions, Relu, Residual,
};
use sordino_nn::{Description, Layer, Network, Shape, models};

/// Networks that between them write gradients out, use Gram matrices, and do neither.
pub(crate) fn networks() -> Vec<Network> {
    let image = Description::new(Shape::Image { channels: 3, height: 9, width: 9 });
    let convolutions = image
        .then(Conv2d::new(8, 3, 1, 1))
        .then(GroupNorm { groups: 2 })
        .then(Relu)
        .then(MaxPool { kernel: 3, stride: 2, padding: 1 })
        .then(Conv2d::new(24, 5, 1, 0))
        .then(GlobalAveragePool)
        .then(Linear::new(3));
    let patches = Description::new(Shape::Image { channels: 3, height: 9, width: 9 })
        .then(Conv2d { standardised: true, ..Conv2d::new(6, 3, 1, 1) })
        .then(GroupNorm { groups: 2 })
        .then(Relu)
        .then(Conv2d::new(8, 3, 3, 0))
        .then(ImageToSequence)
        .then(ClassToken)
        .then(Positions)
        .then(Residual::new(vec![LayerNorm::default().into(), Attention::new(2).into()]))
        .then(FirstStep)
        .then(Linear::new(3));
    // Winograd convolutions with tiles of 4x4 (also for weight gradients) and of 2x2.
    let tiles = Description::new(Shape::Image { channels: 2, height: 13, width: 11 })
        .then(Conv2d::new(16, 3, 1, 1))
        .then(Relu)
        .then(Conv2d::new(17, 3, 1, 1))
        .then(GroupNorm { groups: 1 })
        .then(MaxPool { kernel: 3, stride: 3, padding: 0 })
        .then(Conv2d::new(65, 3, 1, 1))
        .then(GlobalAveragePool)
        .then(Linear::new(3));
    let sequence = |layer: Layer| {
        Description::new(Shape::Sequence { steps: 40, width: 3 })
            .then(Linear::new(4))
            .then(layer)
            .then(LayerNorm::default())
            .then(MeanOverSteps)
            .then(Linear::new(3))
    };
    let mut all = vec![models::mlp(20, &[30, 10], 3).unwrap()];
    all.extend([convolutions, patches, tiles].map(|description| Network::new(&description).unwrap()));
    let layers: [Layer; 4] =
        [Lstm { hidden: 5 }.into(), Gru { hidden: 5 }.into(), Attention::new(2).into(), Gelu.into()];
    for layer in layers {
        all.push(Network::new(&sequence(layer)).unwrap());
    }
    all
}
