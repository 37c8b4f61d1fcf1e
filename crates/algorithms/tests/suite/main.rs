//! Tests of all algorithms: conformance, and the pseudocode and examples of the papers.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod anchors;
mod band_mf;
mod calibration;
mod conformance;
mod counterexamples;
mod examples;
mod papers;
mod published_noise;
mod toy_quadratic;
mod transcript;
