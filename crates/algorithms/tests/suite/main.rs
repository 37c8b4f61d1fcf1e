//! Every algorithm: the rules of the house, and the papers.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod conformance;
mod pull;
