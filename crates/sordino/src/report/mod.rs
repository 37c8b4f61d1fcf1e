//! What a run or a plan guarantees, as text and as JSON. The command line prints these.

mod data_account;
mod federation_report;
mod measured;
pub mod page;
mod run_report;
mod statement;
mod table;

pub(crate) use data_account::with_measurements;
pub use data_account::{DataAccount, DataAccountRecord};
pub use federation_report::FederationReport;
pub use measured::Measured;
pub use run_report::{RunReport, test_records_sentence};
pub use statement::{GuaranteeRecord, json, noise, plan_statement, protects, sampling, status};
pub(crate) use statement::{counted_units, search};
pub use table::{Column, labelled, markdown, table};
