//! What a run or a plan guarantees, as text and as JSON. The command line prints these.

mod data_account;
pub mod page;
mod run_report;
mod statement;
mod table;

pub use data_account::{DataAccount, DataAccountRecord};
pub use run_report::{RunReport, unprotected_records};
pub(crate) use statement::{counted_units, search};
pub use statement::{GuaranteeRecord, json, noise, plan_statement, protects, sampling, status};
pub use table::{Column, labelled, markdown, table};
