//! VGG-11.

use super::registry::{ModelType, Reads, model};
use crate::layers::{Conv2d, GlobalAveragePool, GroupNorm, Linear, MaxPool, Relu};
use crate::{Description, Shape};

model! {
    /// VGG-11 (Simonyan and Zisserman, 2015) with GroupNorm, global pooling and one hidden layer. An image of one pixel is not pooled
    /// again, so small images are permitted.
    pub struct Vgg11 {
        /// Channels of the first convolution; the last one has eight times as many.
        width: usize = 64, in 1..=1024;
        /// Groups of the norm after each convolution; 0 for no norms.
        groups: usize = 32, in 0..=1024;
        /// Width of the hidden layer.
        hidden: usize = 512, in 1..=1 << 20;
        /// Whether filters are standardised.
        standardised: bool = false;
    }
}

impl ModelType for Vgg11 {
    const NAME: &'static str = "vgg11";
    const READS: Reads = Reads::Images;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let Shape::Image { height, width: columns, .. } = input else {
            return Err("needs images".to_owned());
        };
        let mut side = height.min(columns);
        let mut description = Description::new(input);
        let stages: [&[usize]; 5] = [&[1], &[2], &[4, 4], &[8, 8], &[8, 8]];
        let mut number = 0;
        for stage in stages {
            for factor in stage {
                number += 1;
                let convolution = Conv2d::new(factor * self.width, 3, 1, 1);
                let convolution = Conv2d { standardised: self.standardised, ..convolution };
                description = description.named(&format!("conv{number}"), convolution);
                if self.groups > 0 {
                    description =
                        description.named(&format!("norm{number}"), GroupNorm { groups: self.groups });
                }
                description = description.then(Relu);
            }
            if side > 1 {
                description = description.then(MaxPool { kernel: 2, stride: 2, padding: 0 });
                side /= 2;
            }
        }
        Ok(description
            .then(GlobalAveragePool)
            .named("fc1", Linear::new(self.hidden))
            .then(Relu)
            .named("fc2", Linear::new(outputs)))
    }
}
