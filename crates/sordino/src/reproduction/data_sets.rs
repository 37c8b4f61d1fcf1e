//! The data sets of the papers: their public facts, and how Sordino reads them.

use std::path::{Path, PathBuf};

use sordino_train::{Settings, TrainError};

/// A public data set.
#[derive(Debug, PartialEq, Eq)]
pub struct DataSet {
    /// Its name, which is also the name of its folder.
    pub name: &'static str,
    /// The number of training records.
    pub records: usize,
    /// The possible files or folders in the folder of data; the first that exists is used. Empty for data that is included.
    places: &'static [&'static str],
    /// Settings of the data, as TOML.
    settings: &'static str,
    /// What must be put into the folder.
    pub needs: &'static str,
}

const DATA_SETS: [DataSet; 14] = [
    DataSet { name: "mushroom", records: 6499, places: &[], settings: "", needs: "nothing; it is included" },
    DataSet {
        name: "mnist",
        records: 60_000,
        places: &["mnist"],
        settings: "",
        needs: "the four IDX files of MNIST",
    },
    DataSet {
        name: "infinite-mnist-250k",
        records: 250_000,
        places: &["infinite-mnist-250k"],
        settings: "",
        needs: "four IDX files: 250,000 images of InfiniteMNIST and the test set of MNIST",
    },
    DataSet {
        name: "infinite-mnist-500k",
        records: 500_000,
        places: &["infinite-mnist-500k"],
        settings: "",
        needs: "four IDX files: 500,000 images of InfiniteMNIST and the test set of MNIST",
    },
    DataSet {
        name: "fashion-mnist",
        records: 60_000,
        places: &["fashion-mnist"],
        settings: "",
        needs: "the four IDX files of Fashion-MNIST",
    },
    DataSet {
        name: "cifar10",
        records: 50_000,
        places: &["cifar10", "cifar-10-batches-bin"],
        settings: "",
        needs: "the binary version of CIFAR-10",
    },
    DataSet {
        name: "cifar100",
        records: 50_000,
        places: &["cifar100", "cifar-100-binary"],
        settings: "",
        needs: "the binary version of CIFAR-100",
    },
    DataSet {
        name: "svhn",
        records: 73_257,
        places: &["svhn.npz", "svhn/svhn.npz"],
        settings: "classes = 10",
        needs: "SVHN as svhn.npz (docs/data.md shows how to make it)",
    },
    DataSet {
        name: "imdb",
        records: 25_000,
        places: &["imdb/aclImdb", "aclImdb", "imdb"],
        settings: "max_length = 256",
        needs: "the folder aclImdb of IMDb",
    },
    DataSet {
        name: "sst2",
        records: 67_349,
        places: &["sst2/SST-2", "SST-2", "sst2"],
        settings: "",
        needs: "train.tsv and dev.tsv of SST-2",
    },
    DataSet {
        name: "qnli",
        records: 104_743,
        places: &["qnli/QNLI", "QNLI", "qnli"],
        settings: "",
        needs: "train.tsv and dev.tsv of QNLI",
    },
    DataSet {
        name: "e2e",
        records: 42_061,
        places: &["e2e", "e2e-dataset"],
        settings: "",
        needs: "trainset.csv and devset.csv of E2E",
    },
    DataSet {
        name: "names",
        records: 16_059,
        places: &["names/data/names", "names/names", "names"],
        settings: "",
        needs: "a text file of names for each of 18 languages",
    },
    DataSet {
        name: "chest-xray",
        records: 5_232,
        places: &["chest-xray", "chest_xray"],
        settings: "image_size = \"64\"\nchannels = 1",
        needs: "the folders train and test of the paediatric chest X-rays",
    },
];

/// All data sets of the catalogue.
pub fn data_sets() -> &'static [DataSet] {
    &DATA_SETS
}

pub(super) fn find(name: &str) -> Result<&'static DataSet, TrainError> {
    DATA_SETS.iter().find(|set| set.name == name).ok_or_else(|| {
        TrainError::refused(format!("there is no data set {name} in the catalogue"), "report this as a bug")
    })
}

impl DataSet {
    /// The usual name of its file or folder in the folder of data.
    pub(super) fn usual_place(&self) -> &'static str {
        let by_name = self.places.iter().find(|place| **place == self.name);
        by_name.or(self.places.first()).copied().unwrap_or(self.name)
    }

    /// Where it is in the folder of data; none if it is not there.
    pub fn place(&self, folder: Option<&Path>) -> Option<PathBuf> {
        if self.places.is_empty() {
            return Some(PathBuf::from(self.name));
        }
        let folder = folder?;
        self.places.iter().map(|place| folder.join(place)).find(|path| path.exists())
    }

    /// The settings that read it from the folder of data; none if it is not there.
    pub fn settings(&self, folder: Option<&Path>) -> Option<Settings> {
        let settings = Settings::parse(self.settings).expect("a test reads these settings");
        Some(Settings { data: Some(self.place(folder)?), ..settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_sets_are_found_by_their_places() {
        for set in data_sets() {
            assert_eq!(set.settings(None).is_some(), set.name == "mushroom");
        }
        let folder = std::env::temp_dir().join(format!("sordino-data-sets-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("imdb/aclImdb")).unwrap();
        for set in data_sets().iter().filter(|set| !set.places.is_empty()) {
            std::fs::create_dir_all(folder.join(set.places[0])).unwrap();
            assert_eq!(
                set.settings(Some(&folder)).unwrap().data,
                Some(folder.join(set.places[0])),
                "{}",
                set.name
            );
        }
        let imdb = find("imdb").unwrap();
        assert_eq!(imdb.place(Some(&folder)), Some(folder.join("imdb/aclImdb")));
        assert_eq!(find("mnist").unwrap().place(Some(&folder.join("imdb"))), None);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(find("imagenet").is_err());
    }
}
