//! ResNet-20 with GroupNorm.

use crate::layers::{Conv2d, GlobalAveragePool, GroupNorm, Linear, Relu, Residual};
use crate::{Description, LayerDescription, Network, NetworkError, Shape};

const GROUPS: usize = 8;

/// [`resnet20_for`] images of 3x32x32: 272,474 parameters with 10 classes.
///
/// # Errors
/// If there are no classes.
pub fn resnet20(classes: usize) -> Result<Network, NetworkError> {
    resnet20_for(Shape::Image { channels: 3, height: 32, width: 32 }, classes)
}

/// ResNet-20 (He et al., 2016) with GroupNorm in place of BatchNorm, which would mix records, and projections where the
/// shape changes.
///
/// # Errors
/// If the input is not an image, or there are no outputs.
pub fn resnet20_for(input: Shape, outputs: usize) -> Result<Network, NetworkError> {
    let mut description = Description::new(input)
        .named("conv1", convolution(16, 3, 1))
        .named("norm1", GroupNorm { groups: GROUPS })
        .then(Relu);
    for (stage, (channels, stride)) in [(16, 1), (32, 2), (64, 2)].into_iter().enumerate() {
        for block in 0..3 {
            let stride = if block == 0 { stride } else { 1 };
            let name = format!("layer{}.{block}", stage + 1);
            description = description.named(&name, residual(channels, stride)).then(Relu);
        }
    }
    Network::new(&description.then(GlobalAveragePool).named("fc", Linear::new(outputs)))
}

fn convolution(channels: usize, kernel: usize, stride: usize) -> Conv2d {
    Conv2d { bias: false, ..Conv2d::new(channels, kernel, stride, kernel / 2) }
}

fn residual(channels: usize, stride: usize) -> Residual {
    let norm = GroupNorm { groups: GROUPS };
    let body = vec![
        LayerDescription::named("conv1", convolution(channels, 3, stride)),
        LayerDescription::named("norm1", norm),
        Relu.into(),
        LayerDescription::named("conv2", convolution(channels, 3, 1)),
        LayerDescription::named("norm2", norm),
    ];
    let shortcut = match stride {
        1 => Vec::new(),
        _ => vec![convolution(channels, 1, stride).into(), norm.into()],
    };
    Residual { body, shortcut }
}
