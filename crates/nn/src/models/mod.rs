//! Ready-made networks, one file each. Parameters have PyTorch's names.

mod embedding_mlp;
mod gru;
mod lenet5;
mod linear;
mod lstm;
mod mlp;
mod mnist_cnn;
mod resnet20;
mod transformer;

pub use embedding_mlp::embedding_mlp;
pub use gru::gru_classifier;
pub use lenet5::{lenet5, lenet5_for};
pub use linear::{linear, softmax_regression};
pub use lstm::lstm_classifier;
pub use mlp::mlp;
pub use mnist_cnn::{mnist_cnn, mnist_cnn_for};
pub use resnet20::{resnet20, resnet20_for};
pub use transformer::transformer;
