//! Times a fixed transform: `features FOLDER JSON [RECORDS]` prints the time in seconds for the training records of a data set, without the time for
//! reading them. `bench/features.py` compares it with Kymatio.

use std::time::Instant;

use sordino_data::{FeatureConfig, Features, Source, read};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, options, rest @ ..] = arguments.as_slice() else {
        return Err("usage: features FOLDER JSON [RECORDS]".into());
    };
    let config: FeatureConfig = serde_json::from_str(options)?;
    let set = read(&Source { path: folder.into(), ..Source::default() })?.train;
    let count = rest.first().map_or(Ok(set.len()), |count| count.parse())?;
    let set = set.slots_from(0..count.min(set.len()));
    let begun = Instant::now();
    let features = Features::new(&config, set.shape())?;
    // The statistics are computed when the first record is transformed.
    features.apply(&set.slots_from(0..1))?;
    let prepared = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let out = features.apply(&set)?;
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{{\"records\": {}, \"output\": \"{}\", \"preparation\": {prepared}, \"seconds\": {seconds}}}",
        out.len(),
        out.shape()
    );
    Ok(())
}
