//! Estimators on simulated mechanisms with a known epsilon: the bounds that they reach, and how often they raise false alarms.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod ceilings;
mod docs;
mod false_alarms;
mod simulation;
