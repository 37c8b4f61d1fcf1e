//! The data of a run: which records are private, which are public, and what is publicly known about them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use serde::{Deserialize, Serialize};
use sordino_data::{Dataset, Encoding, ImageOptions, Preparation, Scale, Schema, Source, Splits, Truncation};
use sordino_nn::Shape;

use crate::{
    ClientSource, Origin, RunFiles, RunFolder, SettingValues, Settings, TestSetName, TrainError, Value,
    clients, model_notes,
    public_defaults::{check_tokenizer, with_public_defaults},
    settings::given,
};

/// Public facts about the records that a model reads. They are stored with its weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataFacts {
    /// The shape of a record.
    pub input: Shape,
    /// The names of the classes; empty for regression.
    pub classes: Vec<String>,
    /// Whether the list of classes was taken from the labels of the training records. If it was, the guarantee does not cover the list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observed_classes: bool,
    /// How the target values were scaled; empty for classification.
    pub numbers: Vec<Scale>,
    /// How the values of the training records were stored.
    pub encoding: Encoding,
    /// The mean and the standard deviation of each channel by which images were normalised; empty if they were not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub normalisation: Vec<(f64, f64)>,
    /// The number of test records, or of their units. The number of records in units is private.
    pub test_records: u64,
    /// The unit of privacy; none if every record is a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitFacts>,
    /// How records that were given in memory were made, if it was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparation: Option<Preparation>,
}

/// What is publicly known about the units of privacy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitFacts {
    /// What a unit is: the column or array that identifies it.
    pub name: String,
    /// The number of records of a unit that are used; none if all are, as those of a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<usize>,
}

impl DataFacts {
    /// The facts about these records.
    pub fn new(train: &Dataset, test: Option<&Dataset>) -> Self {
        Self {
            input: train.shape(),
            classes: train.classes().to_vec(),
            observed_classes: train.has_observed_classes(),
            numbers: train.scales().to_vec(),
            encoding: train.encoding(),
            normalisation: train.normalisation().to_vec(),
            test_records: test.map_or(0, |test| test.slots() as u64),
            unit: train
                .unit()
                .map(|name| UnitFacts { name: name.to_owned(), records: train.records_per_unit() }),
            preparation: train.preparation().cloned(),
        }
    }

    /// The schema by which records that were given in memory were read.
    pub fn schema(&self) -> Option<&str> {
        self.preparation.as_ref()?.schema.as_deref()
    }

    /// How the target values are scaled, such as `0 to 100 become -1 to 1`; none if they are not.
    pub fn scaling(&self) -> Option<String> {
        let shown = |Scale { center, scale }: &Scale| {
            // The digits that are left after rounding errors.
            let digits = |number: f64| format!("{number:.11e}").parse().unwrap_or(number);
            let [low, high] = [center - scale, center + scale].map(digits);
            format!("{low} to {high} become -1 to 1")
        };
        let mut shown: Vec<String> = self.numbers.iter().map(shown).collect();
        shown.dedup();
        self.numbers.iter().any(|scale| *scale != Scale::NONE).then(|| shortened(&shown))
    }

    /// Checks that these records have labels of the same kind, with the same names of classes in the same order.
    ///
    /// # Errors
    /// Labels with a different meaning.
    pub fn check_labels(&self, data: &Dataset, whose: &str, other: &str) -> Result<(), TrainError> {
        let kind = |classes: &[String]| match classes {
            [] => "numbers".to_owned(),
            classes => format!("the classes {}", shortened(classes)),
        };
        if data.classes() == self.classes && data.scales() == self.numbers {
            return Ok(());
        }
        let (here, there) = (kind(data.classes()), kind(&self.classes));
        let difference = if here == there { ", which are not the same" } else { "" };
        Err(TrainError::refused(
            format!("{whose} have labels that are {here}, {other} has {there}{difference}"),
            "give all records the same kind of labels, with the same classes in the same order",
        ))
    }

    /// The facts that are stored with the weights of a run.
    ///
    /// # Errors
    /// No weights, or weights without facts.
    pub fn read(folder: &RunFolder) -> Result<Self, TrainError> {
        let refused = |problem: &str| {
            TrainError::refused(
                format!("{}: {problem}", folder.model().display()),
                "give the folder of a run that this version has trained",
            )
        };
        let notes = model_notes(folder)?;
        let text = notes
            .get("facts")
            .ok_or_else(|| refused("has no description of the records that the model reads"))?;
        serde_json::from_str(text).map_err(|error| refused(&error.to_string()))
    }
}

/// What is publicly known about the data of a run. Settings are resolved and plans are priced with this alone.
#[derive(Debug, Clone)]
pub struct DataDescription {
    /// The facts that a model needs.
    pub facts: DataFacts,
    /// The number of units of privacy for training: records, unless they belong to units.
    pub records: usize,
    /// The settings of the data.
    pub(crate) values: SettingValues,
    /// The schema of a table.
    pub(crate) schema: Option<String>,
    /// The tokenizer of texts, if it is a file.
    pub(crate) tokenizer: Option<String>,
    /// When the data was last changed, as the ledger stores it.
    pub(crate) last_changed: String,
}

/// The first few names, as text.
pub(crate) fn shortened(names: &[String]) -> String {
    let more = if names.len() > 5 { ", ..." } else { "" };
    format!("{}{more}", names[..names.len().min(5)].join(", "))
}

impl DataDescription {
    /// Describes this many units of privacy by public facts alone. Plans can be priced with this description, before any data is read.
    pub fn public(facts: DataFacts, records: usize) -> Self {
        Self {
            facts,
            records,
            values: SettingValues::default(),
            schema: None,
            tokenizer: None,
            last_changed: String::new(),
        }
    }

    /// Describes records that are given in memory. `settings.data` is a name for them.
    ///
    /// # Errors
    /// Settings that describe how to read a file.
    pub fn in_memory(
        settings: &Settings,
        train: &Dataset,
        test: Option<&Dataset>,
    ) -> Result<Self, TrainError> {
        const FOR_FILES: [&str; 15] = [
            "schema",
            "target",
            "classes",
            "feature_count",
            "image_size",
            "channels",
            "mean",
            "std",
            "tokenizer",
            "max_length",
            "truncation",
            "test_data",
            "test_fraction",
            "split_seed",
            "clients",
        ];
        if let Some(name) = settings.names().into_iter().find(|name| FOR_FILES.contains(name)) {
            return Err(TrainError::refused(
                format!("{name} describes a file, but the records are given in memory"),
                format!("leave out {{{name}}}"),
            ));
        }
        if train.targets().is_none() {
            return Err(TrainError::refused(
                "the training records have no labels",
                "give one label for each record, as in Dataset::from_rows(&x, &y)",
            ));
        }
        let facts = DataFacts::new(train, test);
        let declared = (settings.unit.as_deref(), settings.records_per_unit);
        let (unit, records) = (train.unit(), train.records_per_unit());
        if declared.0.is_some_and(|name| Some(name) != unit) || declared.1.is_some_and(|n| Some(n) != records)
        {
            return Err(TrainError::refused(
                "unit and records_per_unit describe a file, but the records are given in memory",
                "declare units with Dataset::in_units and Dataset::limit_units, and leave out {unit} and {records_per_unit}",
            ));
        }
        if let Some(test) = test {
            check_units(train, test)?;
            if test.targets().is_none() {
                return Err(TrainError::refused(
                    "the test records have no labels",
                    "give labelled test records",
                ));
            }
            if test.shape() != train.shape() {
                return Err(TrainError::refused(
                    format!(
                        "the test records have the shape {}, the training records {}",
                        test.shape(),
                        train.shape()
                    ),
                    "give test records like the training records",
                ));
            }
            facts.check_labels(test, "the test records", "training")?;
        }
        let (unit, records_per_unit) = unit_values(settings, train);
        let values = SettingValues {
            data: given(settings.data.clone()),
            unit,
            records_per_unit,
            test_set: test
                .map(|_| Value::given_or(settings.test_set, TestSetName::Protected, Origin::Default)),
            ..SettingValues::default()
        };
        Ok(Self { values, ..Self::public(facts, train.slots()) })
    }
}

/// Records that were read from files.
pub struct RunData {
    /// The private records.
    pub train: Dataset,
    /// The test records: public, or protected in measurements.
    pub test: Option<Dataset>,
    /// What is publicly known about them.
    pub description: DataDescription,
}

impl RunData {
    /// Reads the private and the public records.
    ///
    /// # Errors
    /// Files that cannot be read; settings that do not fit them or exclude each other.
    pub fn read(settings: &Settings) -> Result<Self, TrainError> {
        // Absolute paths, so that a run can be resumed from any folder.
        let absolute = |path: &Option<PathBuf>| path.clone().map(|path| path.canonicalize().unwrap_or(path));
        let test_data = absolute(&settings.test_data);
        let path = absolute(&settings.data).unwrap_or("mushroom".into());
        check_paths([Some(&path), test_data.as_ref()].into_iter().flatten())?;
        let files = clients::files(settings, &path)?;
        let source =
            with_public_defaults(settings, Source { path: files[0].clone(), ..data_source(settings) })?;
        // Taken before the records are read, so that a change during reading counts as a later change.
        let last_changed = last_changed(settings, Some(&path));
        let sets = clients::read(settings, &source, &files)?;
        check_tokenizer(settings, sets.schema.as_ref())?;
        let separate = separate_test_set(test_data.as_deref(), &source, &sets, &files)?;
        // The records of the included data are public, whether it has a test set or not.
        let included = path == Path::new("mushroom");
        let published = sordino_data::is_published(&path) && (sets.test.is_some() || included);
        let test_set = test_set(settings, published);
        let Splits { train, test, schema } = sets;
        let limited = |set: Dataset| match settings.records_per_unit {
            Some(_) if set.unit().is_none() => Err(TrainError::refused(
                "records_per_unit needs a unit of privacy",
                "name the column that identifies it with {unit}, or leave out {records_per_unit}",
            )),
            Some(most) => Ok(set.limit_units(most)?),
            None => Ok(set),
        };
        let train = limited(train)?;
        let test = test.or(separate).map(|test| clients::of_test_records(settings, test)).transpose()?;
        let test = test.map(limited).transpose()?;
        if let Some(test) = &test {
            check_units(&train, test)?;
        }
        let (unit, records_per_unit) = unit_values(settings, &train);
        let mut values = SettingValues {
            data: Some(Value::given_or(
                settings.data.as_ref().map(|_| path.clone()),
                path.clone(),
                Origin::Default,
            )),
            test_data: given(test_data),
            unit,
            records_per_unit,
            image_size: stated(settings.image_size, source.images.size),
            channels: stated(settings.channels, source.images.channels),
            mean: stated(settings.mean.clone(), source.images.mean.clone()),
            std: stated(settings.std.clone(), source.images.std.clone()),
            ..SettingValues::default()
        };
        if schema.is_some() {
            // The schema has the target, the classes, the features and the tokenizer.
            values.schema = Some(Value::given_or(
                settings.schema.as_ref().map(|_| RunFiles::SCHEMA.into()),
                RunFiles::SCHEMA.into(),
                Origin::PublicFact,
            ));
        } else {
            values.schema = given(settings.schema.clone());
            values.target = given(settings.target.clone());
            values.classes = given(settings.classes);
            values.feature_count = given(settings.feature_count);
        }
        let tokenizer = schema.as_ref().and_then(Schema::tokenizer_file).map(|file| tokenizer_text(&file));
        let tokenizer = tokenizer.transpose()?;
        // The run keeps a copy of the tokenizer next to the schema.
        let schema = schema.map(|schema| schema.with_tokenizer_file(RunFiles::TOKENIZER));
        let schema =
            schema.map(|schema| toml::to_string(&schema).expect("a schema of numbers and strings is TOML"));
        let (train, test) = match test {
            Some(test) => {
                reject_split(settings)?;
                (train, Some(test))
            }
            None => {
                let fraction = Value::given_or(settings.test_fraction, 0.2, Origin::Default);
                let seed = Value::given_or(settings.split_seed, 0, Origin::Default);
                let parts = train.split(fraction.value, seed.value)?;
                // Without test records the seed has no effect; it stays in the settings if the user set it.
                values.split_seed =
                    Some(seed).filter(|seed| fraction.value != 0.0 || seed.origin == Origin::User);
                values.test_fraction = Some(fraction);
                parts
            }
        };
        values.test_set = Some(test_set).filter(|_| test.is_some());
        let description = DataDescription {
            facts: DataFacts::new(&train, test.as_ref()),
            records: train.slots(),
            last_changed,
            values,
            schema,
            tokenizer,
        };
        Ok(Self { train, test, description })
    }
}

/// The settings of the unit of privacy.
fn unit_values(settings: &Settings, train: &Dataset) -> (Option<Value<String>>, Option<Value<usize>>) {
    let unit = train.unit().map(|unit| {
        Value::given_or(settings.unit.as_ref().map(|_| unit.to_owned()), unit.to_owned(), Origin::PublicFact)
    });
    let records = train
        .records_per_unit()
        .map(|records| Value::given_or(settings.records_per_unit, records, Origin::Default));
    (unit, records)
}

/// Rejects test records that belong to a unit with training records: a unit is protected as a whole.
fn check_units(train: &Dataset, test: &Dataset) -> Result<(), TrainError> {
    match (train.unit(), test.unit()) {
        (None, None) => Ok(()),
        (Some(unit), Some(_)) if train.shares_units_with(test) => Err(TrainError::refused(
            format!("a {unit} has records in the training set and in the test set"),
            format!(
                "put all records of each {unit} into one of them, or hold back part of the data with {{test_fraction}}"
            ),
        )),
        (Some(_), Some(_)) => Ok(()),
        (Some(unit), None) => Err(TrainError::refused(
            format!("the training records have the unit {unit}, but the test records have none"),
            "give test records with the same unit",
        )),
        (None, Some(unit)) => Err(TrainError::refused(
            format!("the test records have the unit {unit}, but the training records have none"),
            "give training records with the same unit",
        )),
    }
}

/// Whether test records are protected. A test set that belongs to a data set is public, and so is the included data.
fn test_set(settings: &Settings, published: bool) -> Value<TestSetName> {
    match published {
        true => Value::given_or(settings.test_set, TestSetName::Public, Origin::PublicFact),
        false => Value::given_or(settings.test_set, TestSetName::Protected, Origin::Default),
    }
}

/// The value of a setting that was used: given by the user, or set by a public model.
fn stated<T>(by_user: Option<T>, used: Option<T>) -> Option<Value<T>> {
    used.map(|used| Value::given_or(by_user, used, Origin::PublicFact))
}

/// Where the data is, according to the settings.
pub fn data_source(settings: &Settings) -> Source {
    Source {
        path: settings.data.clone().unwrap_or_else(|| "mushroom".into()),
        schema: settings.schema.clone(),
        target: settings.target.clone(),
        // With the clients of a split or of files, the unit is not a column.
        unit: settings.unit.clone().filter(|_| settings.clients.is_none()),
        classes: settings.classes,
        features: settings.feature_count,
        images: ImageOptions {
            size: settings.image_size,
            channels: settings.channels,
            mean: settings.mean.clone(),
            std: settings.std.clone(),
        },
        tokenizer: settings.tokenizer.clone(),
        max_length: settings.max_length,
        truncation: settings.truncation.map(Truncation::from),
    }
}

/// The text of a tokenizer's file.
fn tokenizer_text(file: &Path) -> Result<String, TrainError> {
    fs::read_to_string(file).map_err(|error| {
        TrainError::refused(format!("cannot read {}: {error}", file.display()), "restore the file")
    })
}

/// Rejects paths that cannot be written to a TOML file.
fn check_paths<'a>(mut paths: impl Iterator<Item = &'a PathBuf>) -> Result<(), TrainError> {
    match paths.find(|path| path.to_str().is_none()) {
        None => Ok(()),
        Some(path) => Err(TrainError::refused(
            format!("the path {} is not UTF-8, so it cannot be written to config.toml", path.display()),
            "rename it, or make a link to it whose name is UTF-8",
        )),
    }
}

/// The test records of a separate file.
fn separate_test_set(
    path: Option<&Path>,
    source: &Source,
    sets: &Splits,
    files: &[PathBuf],
) -> Result<Option<Dataset>, TrainError> {
    let Some(path) = path else { return Ok(None) };
    if *path == source.path {
        return Err(TrainError::refused(
            format!("test_data is {}, which is the training data itself", path.display()),
            "a record must not be both a training record and a test record; give other records, or hold back part of the data with {test_fraction}",
        ));
    }
    if sets.test.is_some() {
        return Err(TrainError::refused(
            format!("test_data is {}, but the data has a test set of its own", path.display()),
            "leave out one of them",
        ));
    }
    let training: BTreeSet<PathBuf> = files.iter().flat_map(|file| sordino_data::files(file)).collect();
    if let Some(shared) =
        sordino_data::files(path).iter().find(|file| file.is_file() && training.contains(*file))
    {
        return Err(TrainError::refused(
            format!("test_data and data share the file {}", shared.display()),
            "a record must not be both a training record and a test record; give other files",
        ));
    }
    Ok(Some(sordino_data::read_test(path, source, sets)?))
}

/// Rejects split settings for data that has a test set.
fn reject_split(settings: &Settings) -> Result<(), TrainError> {
    let split = settings.test_fraction.map(|fraction| format!("test_fraction is {fraction}"));
    match split.or(settings.split_seed.map(|seed| format!("split_seed is {seed}"))) {
        None => Ok(()),
        Some(given) => Err(TrainError::refused(
            format!("{given}, but there is a test set, so no records are held back"),
            "leave it out",
        )),
    }
}

/// When the data was last changed, as the ledger stores it. A resumed run must use the records that it began with. The time is compared
/// because nothing that is computed from the records may be stored.
pub(crate) fn last_changed(settings: &Settings, path: Option<&PathBuf>) -> String {
    let Some(path) = path else { return String::new() };
    let files = match settings.clients {
        // A folder that cannot be read is an error of the reader.
        Some(ClientSource::Files) => clients::files(settings, path).unwrap_or_default(),
        _ => sordino_data::files(path),
    };
    // A file that is renamed, added or removed changes its folder. The order of records and the classes follow from names.
    let folders =
        files.iter().flat_map(|file| file.ancestors().skip(1)).filter(|folder| folder.starts_with(path));
    let folders: BTreeSet<PathBuf> = folders.map(Path::to_owned).collect();
    let files: Vec<PathBuf> = files.into_iter().chain(folders).collect();
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
    let last = files.iter().filter_map(changed).max().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    last.map_or(String::new(), |time| {
        format!("# data last changed at {}.{:09}\n", time.as_secs(), time.subsec_nanos())
    })
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::Duration};

    use super::*;

    /// A folder of images for each of two classes, all last changed long ago.
    fn class_folders(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("sordino-train-data-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for class in ["cat", "dog"] {
            fs::create_dir_all(folder.join(class)).unwrap();
            let image = folder.join(class).join("1.png");
            fs::write(&image, "").unwrap();
            for path in [image, folder.join(class)] {
                File::open(path).unwrap().set_modified(long_ago).unwrap();
            }
        }
        File::open(&folder).unwrap().set_modified(long_ago).unwrap();
        folder
    }

    #[test]
    fn renamed_classes_and_files_are_changes_of_the_data() {
        for (from, to) in [("cat", "zebra"), ("cat/1.png", "cat/2.png")] {
            let folder = class_folders("renamed");
            let before = last_changed(&Settings::default(), Some(&folder));
            assert_eq!(before, "# data last changed at 1000000000.000000000\n");
            fs::rename(folder.join(from), folder.join(to)).unwrap();
            assert_ne!(last_changed(&Settings::default(), Some(&folder)), before, "{from}");
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn test_records_must_not_be_training_files() {
        let folder = std::env::temp_dir().join(format!("sordino-train-shared-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for class in ["a", "b"] {
            fs::create_dir_all(folder.join(class)).unwrap();
            fs::write(folder.join(class).join("1.txt"), class).unwrap();
        }
        let settings = Settings {
            data: Some(folder.clone()),
            test_data: Some(folder.join("a").join("1.txt")),
            ..Settings::default()
        };
        let error = RunData::read(&settings).err().unwrap().to_string();
        assert!(error.contains("share the file"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}
