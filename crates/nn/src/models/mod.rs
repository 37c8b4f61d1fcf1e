//! Ready-made networks, one file each. Parameters have PyTorch's names.
//!
//! A new model needs its file and its name in the list below. The list makes [`ModelConfig`]: parsing, checks, and the table in
//! `docs/models.md`.

mod blocks;
mod registry;

pub use registry::{ModelOption, Reads, Widths, markdown_table};

pub use embedding_mlp::embedding_mlp;
pub use gru::gru_classifier;
pub use lenet5::lenet5;
pub use linear::{linear, softmax_regression};
pub use lstm::lstm_classifier;
pub use mlp::mlp;
pub use mnist_cnn::mnist_cnn;
pub use resnet20::resnet20;
pub use transformer::transformer;

registry::models!(
    logistic: Logistic,
    linear: Linear,
    mlp: Mlp,
    mnist_cnn: MnistCnn,
    lenet5: LeNet5,
    resnet20: ResNet20,
    resnet18: ResNet18,
    resnet34: ResNet34,
    vgg11: Vgg11,
    vit_tiny: VitTiny,
    vit_small: VitSmall,
    bag_of_words: BagOfWords,
    embedding_mlp: EmbeddingMlp,
    lstm: Lstm,
    gru: Gru,
    transformer: Transformer,
    gpt: Gpt,
);
