//! `sordino export`: writes a tuned model in the form of Hugging Face.

use std::path::PathBuf;

use crate::{Fitted, nn::pretrained::Export};
use clap::Args;

use crate::cli::problem::Problem;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder of a run on a pre-trained model
    #[arg(value_name = "DIR")]
    run: PathBuf,
    /// New folder for config.json and model.safetensors
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write the adapters of LoRA and the head alone, as the package peft reads them, instead of the whole model
    #[arg(long)]
    adapter: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let fitted = Fitted::open(&arguments.run)?;
    fitted.export(&arguments.out, if arguments.adapter { Export::Adapter } else { Export::Merged })?;
    Ok(format!("wrote {}\n\n{}", arguments.out.display(), fitted.guarantee()))
}
