//! Networks with per-record gradients, at the speed of ordinary training.
//!
//! A [`Description`] becomes a [`Network`]; an [`Engine`] runs it over batches. One [`pass`](Engine::pass) gives the losses
//! and gradient norms of the chosen records and any number of weighted sums of their gradients, where the weights may depend
//! on the norms: clipping is a rule for weights. Only a chunk of records for each worker is in memory at a time.
//!
//! This crate does not add noise and gives no privacy guarantee: its results are as private as the records.
//! `docs/engine.md` explains how it works.
//!
//! No layer mixes records. There is no BatchNorm: use [`GroupNorm`](layers::GroupNorm) for images and [`LayerNorm`](layers::LayerNorm) for vectors
//! and sequences.

mod batch;
mod chunk_gradients;
mod cut;
mod description;
mod engine;
mod error;
mod gradients;
mod graph_builder;
mod init;
mod kernels;
pub mod layers;
mod limits;
mod loss;
pub mod models;
mod network;
mod params;
mod pass;
mod patches;
pub mod pretrained;
mod safetensors;
mod shape;
mod shapes;
mod store;
mod tape;
mod units;
mod views;
mod worker;

pub use batch::{Inputs, Records, Targets, Unlabelled};
pub use description::{Description, LayerDescription};
pub use engine::Engine;
pub use error::NetworkError;
pub use init::{Init, Parameter};
pub use layers::{Layer, RecordLayer};
pub use loss::Loss;
pub use network::{LayerParameters, Network};
pub use params::{Layout, Params, Slice};
pub use pass::{Outcome, Pass, WeightRule};
pub use patches::PatchProduct;

pub use shape::Shape;
pub use store::RecordStore;
pub use units::{Combination, Units};
pub use views::Views;
