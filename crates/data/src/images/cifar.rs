//! The binary format of CIFAR-10 and CIFAR-100: a label of one or two bytes, then 32 by 32 pixels of red, of green and of blue.

use std::fs;
use std::path::{Path, PathBuf};

use sordino_nn::Shape;

use crate::dataset::{Dataset, check_size};
use crate::encoding::{Conversion, Encoding};
use crate::error::DataError;
use crate::input::{fill, open, unreadable};
use crate::labels::{LabelValues, numbered};
use crate::source::Splits;
use crate::unlabelled::UnlabelledRows;

const SHAPE: Shape = Shape::Image { channels: 3, height: 32, width: 32 };
const PIXELS: usize = 3 * 32 * 32;

/// Which of the two data sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cifar {
    Ten,
    Hundred,
}

impl Cifar {
    /// The data set in a folder, or in the subfolder that unpacking its archive creates.
    pub(crate) fn detect(folder: &Path) -> Option<Cifar> {
        [Cifar::Ten, Cifar::Hundred].into_iter().find(|cifar| {
            let folder = cifar.folder(folder);
            cifar.train_files().iter().chain([&cifar.test_file()]).any(|name| find(&folder, name).is_some())
        })
    }

    fn folder(self, folder: &Path) -> PathBuf {
        let inner = folder.join(match self {
            Cifar::Ten => "cifar-10-batches-bin",
            Cifar::Hundred => "cifar-100-binary",
        });
        if inner.is_dir() { inner } else { folder.to_owned() }
    }

    fn train_files(self) -> &'static [&'static str] {
        match self {
            Cifar::Ten => &[
                "data_batch_1.bin",
                "data_batch_2.bin",
                "data_batch_3.bin",
                "data_batch_4.bin",
                "data_batch_5.bin",
            ],
            Cifar::Hundred => &["train.bin"],
        }
    }

    fn test_file(self) -> &'static str {
        match self {
            Cifar::Ten => "test_batch.bin",
            Cifar::Hundred => "test.bin",
        }
    }

    fn classes(self) -> usize {
        match self {
            Cifar::Ten => 10,
            Cifar::Hundred => 100,
        }
    }

    /// The bytes before the pixels. The last of them is the class; CIFAR-100 has a coarse class before it, which is not read.
    fn label_bytes(self) -> usize {
        match self {
            Cifar::Ten => 1,
            Cifar::Hundred => 2,
        }
    }

    /// The public names of the classes from the text file of the archive, or numbers.
    fn names(self, folder: &Path) -> Result<Vec<String>, DataError> {
        let path = folder.join(match self {
            Cifar::Ten => "batches.meta.txt",
            Cifar::Hundred => "fine_label_names.txt",
        });
        if !path.exists() {
            return Ok(numbered(self.classes()));
        }
        let file = path.display().to_string();
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&file, &error))?;
        let names: Vec<String> =
            text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
        let mut different = names.clone();
        different.sort_unstable();
        different.dedup();
        if different.len() == self.classes() && names.len() == self.classes() {
            return Ok(names);
        }
        Err(DataError::file(
            file,
            format!("has {} different names, expected {}", different.len(), self.classes()),
            "restore the file; or remove it, then classes are numbers",
        ))
    }

    /// Reads the training set and, if present, the test set.
    pub(crate) fn read(self, folder: &Path, classes: Option<usize>) -> Result<Splits, DataError> {
        self.check_classes(classes)?;
        let folder = self.folder(folder);
        let train = self.train_files().iter().map(|name| self.expect(&folder, name));
        let train = self.labelled(&folder, &train.collect::<Result<Vec<_>, _>>()?, None)?;
        let test = find(&folder, self.test_file()).map(|test| self.labelled(&folder, &[test], None));
        Ok(Splits { train, test: test.transpose()?, schema: None })
    }

    /// Reads the test set, or the training set if there is none, in the encoding of the training records.
    pub(crate) fn read_test(self, folder: &Path, wanted: Encoding) -> Result<Dataset, DataError> {
        let folder = self.folder(folder);
        self.labelled(&folder, &self.one_part(&folder)?, Some(wanted))
    }

    /// Reads the images of the test set, or of the training set if there is none.
    pub(crate) fn read_unlabelled(
        self,
        folder: &Path,
        wanted: Option<Encoding>,
    ) -> Result<UnlabelledRows, DataError> {
        let folder = self.folder(folder);
        let files = self.one_part(&folder)?;
        let part = match &files[..] {
            [file] => file.display().to_string(),
            files => format!("the {} files of training images of {}", files.len(), folder.display()),
        };
        let file = folder.display().to_string();
        let conversion = Conversion::new(&file, Encoding::Bytes, wanted)?;
        let (values, _) = self.records(&files, conversion, false)?;
        let records = Dataset::new(&file, SHAPE, conversion.encoding, values, LabelValues::Absent)?;
        Ok(UnlabelledRows { part: Some(part), ..UnlabelledRows::new(records, Vec::new(), None) })
    }

    fn one_part(self, folder: &Path) -> Result<Vec<PathBuf>, DataError> {
        match find(folder, self.test_file()) {
            Some(test) => Ok(vec![test]),
            None => self.train_files().iter().map(|name| self.expect(folder, name)).collect(),
        }
    }

    fn labelled(
        self,
        folder: &Path,
        files: &[PathBuf],
        wanted: Option<Encoding>,
    ) -> Result<Dataset, DataError> {
        let file = folder.display().to_string();
        let conversion = Conversion::new(&file, Encoding::Bytes, wanted)?;
        let (values, classes) = self.records(files, conversion, true)?;
        let labels = LabelValues::Classes { classes, names: self.names(folder)? };
        Dataset::new(&file, SHAPE, conversion.encoding, values, labels)
    }

    /// The values of the images and, if `labelled`, their classes.
    fn records(
        self,
        files: &[PathBuf],
        conversion: Conversion,
        labelled: bool,
    ) -> Result<(Vec<f32>, Vec<u32>), DataError> {
        let pixels: [f32; 256] =
            std::array::from_fn(|byte| conversion.apply(byte as f64).unwrap_or_default());
        let (mut values, mut classes) = (Vec::new(), Vec::new());
        let mut record = vec![0; self.label_bytes() + PIXELS];
        for path in files {
            let file = path.display().to_string();
            let mut source = open(path)?;
            // The number of pixels, unless the file is compressed; at most the size of the file.
            values.reserve(fs::metadata(path).map_or(0, |found| found.len() as usize));
            for number in 1.. {
                let got = fill(&mut source, &mut record).map_err(|error| unreadable(&file, &error))?;
                if got == 0 {
                    break;
                }
                let place = || format!("{file}, record {number}");
                if got < record.len() {
                    return Err(DataError::file(
                        place(),
                        format!("the file ends within the record, after {got} of {} bytes", record.len()),
                        "the file is truncated, or is not a CIFAR file; copy or download it again",
                    ));
                }
                let class = record[self.label_bytes() - 1];
                if labelled && usize::from(class) >= self.classes() {
                    return Err(DataError::value(
                        place(),
                        format!("a class of 0 to {}", self.classes() - 1),
                        class.to_string(),
                        "the file is damaged, or is not a CIFAR file; download it again",
                    ));
                }
                classes.push(u32::from(class));
                check_size(place, values.len() + PIXELS)?;
                values.extend(record[self.label_bytes()..].iter().map(|&byte| pixels[usize::from(byte)]));
            }
        }
        Ok((values, classes))
    }

    fn check_classes(self, declared: Option<usize>) -> Result<(), DataError> {
        match declared {
            Some(declared) if declared != self.classes() => Err(DataError::Setting {
                what: "number of classes",
                permitted: format!("{} as in CIFAR-{0}, or left out", self.classes()),
                got: declared.to_string(),
                hint: "the binary format of CIFAR has a fixed number of classes".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn expect(self, folder: &Path, name: &str) -> Result<PathBuf, DataError> {
        find(folder, name).ok_or_else(|| {
            DataError::file(
                folder.display().to_string(),
                format!("has no file {name}"),
                format!("a folder of CIFAR-{} has {}", self.classes(), self.train_files().join(", ")),
            )
        })
    }
}

/// A file of a folder, compressed or not.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    [folder.join(name), folder.join(format!("{name}.gz"))].into_iter().find(|path| path.is_file())
}
