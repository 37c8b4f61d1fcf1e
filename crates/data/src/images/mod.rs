//! Images: PNG and JPEG files, CIFAR, and the public options by which images are converted.

pub(crate) mod cifar;
mod decode;
pub(crate) mod files;
mod options;
pub(crate) mod sets;

use decode::Decoder;
pub use options::{ImageOptions, ImageSize};

/// The extensions of image files, in lower case.
pub(crate) const EXTENSIONS: [&str; 3] = ["png", "jpg", "jpeg"];
