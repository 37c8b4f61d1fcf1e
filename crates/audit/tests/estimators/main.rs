//! Estimators on simulated mechanisms with a known epsilon: what they reach, and how often they accuse wrongly.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod ceilings;
mod docs;
mod false_alarms;
mod simulation;
