//! Networks whose gradients are known record by record, at the speed of plain training.
mod batch;
mod description;
mod engine;
mod error;
mod gradients;
mod inference;
mod init;
mod kernels;
mod layers;
mod loss;
pub mod models;
mod network;
mod params;
mod safetensors;
mod shape;
mod tape;

pub use batch::{Inputs, Records, Targets, Unlabelled};
pub use description::{Description, Layer, LayerDescription};
pub use engine::{Engine, Outcome, Query, RecordNorms, RecordWeights, Weigh};
pub use error::NetworkError;
pub use loss::Loss;
pub use network::{LayerParameters, Network};
pub use params::{Layout, Params, Slice};
pub use shape::Shape;
