//! Files of records, in every format.

use std::{fs, path::PathBuf};

use image::ImageFormat;
use parquet::basic::Compression;
use sordino_data::{
    Dataset, ImageOptions, PredictionOptions, Source, check, convert, draft, overview, read, read_unlabelled,
};
use sordino_nn::{Inputs, Shape};
use sordino_testing::Folder;

use super::{Make, files};
use crate::{
    Target,
    container::{Container, archive, gzip},
};

pub(super) const ALL: [(&str, Make); 17] = [
    ("csv", csv),
    ("csv-schema", csv_with_schema),
    ("json-lines", json_lines),
    ("svmlight", svmlight),
    ("svmlight-gzip", svmlight_gzip),
    ("npy", npy),
    ("npz", npz),
    ("npy-folder", npy_folder),
    ("idx-images", idx_images),
    ("idx-labels", idx_labels),
    ("cifar", cifar),
    ("png", png),
    ("jpeg", jpeg),
    ("parquet-table", parquet_table),
    ("parquet-images", parquet_images),
    ("cache", cache),
    ("text-lines", text_lines),
];

/// A file of records in a folder, and the ways in which it is read.
struct Records {
    folder: Folder,
    name: &'static str,
    container: Container,
    good: Vec<Vec<u8>>,
    sources: Vec<Source>,
    /// Whether the format has no labels, so that it is read for prediction only.
    unlabelled: bool,
}

impl Records {
    /// A target whose source is the file itself, or a folder if `root` names one.
    fn make(name: &'static str, root: Option<&str>, container: Container, good: Vec<Vec<u8>>) -> Self {
        let folder = Folder::new(&format!("fuzz-{}", name.replace('/', "-")));
        let path = folder.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let source = Source { path: root.map_or(path, |root| folder.file(root)), ..Source::default() };
        Self { folder, name, container, good, sources: vec![source], unlabelled: false }
    }

    /// Changes the source.
    fn with(mut self, change: impl Fn(Source) -> Source) -> Self {
        self.sources = self.sources.into_iter().map(change).collect();
        self
    }

    /// Adds another way in which the file is read.
    fn also(mut self, change: impl Fn(Source) -> Source) -> Self {
        self.sources.push(change(self.sources[0].clone()));
        self
    }

    /// Writes a good file next to the damaged one.
    fn beside(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let path = self.folder.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }

    fn boxed(self) -> Box<dyn Target> {
        Box::new(self)
    }
}

impl Target for Records {
    fn container(&self) -> Container {
        self.container
    }

    fn good(&self) -> &[Vec<u8>] {
        &self.good
    }

    fn read(&mut self, input: &[u8]) -> Result<bool, String> {
        let file = self.folder.file(self.name);
        fs::write(&file, input).unwrap();
        let mut accepted = false;
        for source in &self.sources {
            if let Ok(sets) = read(source) {
                for set in std::iter::once(&sets.train).chain(&sets.test) {
                    visit(set)?;
                }
                accepted = true;
            }
            if let Ok(unlabelled) = read_unlabelled(source, &PredictionOptions::default())
                && let Some(records) = &unlabelled.records
            {
                visit(records)?;
                accepted |= self.unlabelled;
            }
            let _ = check(source);
            let _ = overview(source);
        }
        if matches!(self.container, Container::Text) {
            let _ = draft(&file, Some(&file), false);
        }
        Ok(accepted)
    }
}

/// Reads every value of a data set.
fn visit(set: &Dataset) -> Result<(), String> {
    if set.is_empty() || set.shape().is_empty() {
        return Err("a data set without records or without values was accepted".to_owned());
    }
    match (set.inputs(), set.shape()) {
        (Inputs::Stored(store), Shape::Tokens { vocabulary, .. }) => {
            for record in 0..store.records() {
                let mut tokens = vec![0; store.steps(record)];
                if store.read_tokens(record, &mut tokens).is_ok()
                    && tokens.iter().any(|&token| token as usize >= vocabulary)
                {
                    return Err("a token beyond the vocabulary was accepted".to_owned());
                }
            }
        }
        (Inputs::Stored(store), shape) => {
            let mut values = vec![0.0; shape.len()];
            for record in 0..store.records() {
                if store.read_values(record, &mut values).is_ok()
                    && values.iter().any(|value| !value.is_finite())
                {
                    return Err("a value that is not finite was accepted".to_owned());
                }
            }
        }
        (Inputs::Dense(values), _) if values.iter().any(|value| !value.is_finite()) => {
            return Err("a value that is not finite was accepted".to_owned());
        }
        (Inputs::Tokens { tokens, .. }, Shape::Tokens { vocabulary, .. })
            if tokens.iter().any(|&token| token as usize >= vocabulary) =>
        {
            return Err("a token beyond the vocabulary was accepted".to_owned());
        }
        _ => {}
    }
    Ok(())
}

fn texts(good: &[&str]) -> Vec<Vec<u8>> {
    good.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn csv() -> Box<dyn Target> {
    let good = texts(&[
        "a,b\n1,0\n2,1\n",
        "1.5,2,0\n-3e2,4,1\n",
        "\u{feff}a,\"b,c\",d\r\n1,\"2\",0\r\n\"3\",4,1\r\n",
    ]);
    let target = Records::make("t.csv", None, Container::Text, good);
    target
        .with(|source| Source { classes: Some(2), ..source })
        .also(|source| Source { target: Some("1".to_owned()), ..source })
        .boxed()
}

const SCHEMA: &str = "target = \"b\"\n[[columns]]\nname = \"a\"\ntype = \"number\"\nscale = 2.0\n[[columns]]\nname = \"b\"\n\
                      type = \"category\"\nvalues = [\"x\", \"yes\"]\n";

fn csv_with_schema() -> Box<dyn Target> {
    let target =
        Records::make("t.csv", None, Container::Text, texts(&["a,b\n1,x\n2,\"yes\"\n", "b,a\nx,0.5\n"]));
    let schema = Some(target.folder.file("schema.toml"));
    target.beside("schema.toml", SCHEMA).with(|source| Source { schema: schema.clone(), ..source }).boxed()
}

fn json_lines() -> Box<dyn Target> {
    let good = texts(&[
        "{\"a\": \"hi\", \"b\": 0}\n{\"b\": 1, \"a\": null}\n",
        "{\"a\": 1.5, \"b\": 0}\n{\"a\": -2, \"b\": 1}\n",
    ]);
    let target = Records::make("t.jsonl", None, Container::Text, good);
    let target = target.with(|source| Source { classes: Some(2), target: Some("b".to_owned()), ..source });
    target.also(|source| Source { tokenizer: Some("bytes".to_owned()), ..source }).boxed()
}

fn svmlight() -> Box<dyn Target> {
    let target = Records::make(
        "t.svm",
        None,
        Container::Text,
        texts(&["1 1:2 3:4\n0 2:1 # c\n", "-1 1:0.5\n+1 2:1e3\n"]),
    );
    target.with(|source| Source { features: Some(3), ..source }).boxed()
}

fn svmlight_gzip() -> Box<dyn Target> {
    let good = vec![gzip(b"1 1:2 3:4\n0 2:1 # c\n").unwrap()];
    let target = Records::make("t.svm.gz", None, Container::Gzip, good);
    target.with(|source| Source { features: Some(3), ..source }).boxed()
}

/// Arrays of several types.
fn arrays() -> Vec<Vec<u8>> {
    vec![
        files::npy("<f4", "(2, 2)", &files::floats(&[1.0, 2.0, 3.0, 4.5])),
        files::npy("|u1", "(2, 1, 2, 2)", &[1, 2, 3, 4, 5, 6, 7, 8]),
        files::npy(">i2", "(3, 1)", &[0, 1, 0, 2, 0, 3]),
        files::npy("<f8", "(1, 1)", &1.5_f64.to_le_bytes()),
    ]
}

fn npy() -> Box<dyn Target> {
    Records { unlabelled: true, ..Records::make("t.npy", None, Container::Npy, arrays()) }.boxed()
}

fn npz() -> Box<dyn Target> {
    let y = files::npy("<i8", "(2,)", &[1_i64, 0].map(i64::to_le_bytes).concat());
    let archived =
        |x: &[u8], y: &[u8]| archive(&[("x.npy".to_owned(), x.to_vec()), ("y.npy".to_owned(), y.to_vec())]);
    let good = arrays().iter().take(2).map(|x| archived(x, &y).unwrap()).collect();
    Records::make("t.npz", None, Container::Npz, good)
        .with(|source| Source { classes: Some(2), ..source })
        .boxed()
}

fn npy_folder() -> Box<dyn Target> {
    let target = Records::make("arrays/x.npy", Some("arrays"), Container::Npy, arrays()[..2].to_vec());
    let target = target.beside("arrays/y.npy", files::npy("|u1", "(2,)", &[0, 1]));
    target.with(|source| Source { classes: Some(2), ..source }).boxed()
}

fn idx_images() -> Box<dyn Target> {
    let good = vec![files::idx(0x803, &[2, 1, 2], &[1, 2, 3, 4])];
    let target = Records::make("mnist/train-images-idx3-ubyte", Some("mnist"), Container::Bytes, good);
    target.beside("mnist/train-labels-idx1-ubyte", files::idx(0x801, &[2], &[1, 2])).boxed()
}

fn idx_labels() -> Box<dyn Target> {
    let target = Records::make(
        "mnist/train-labels-idx1-ubyte",
        Some("mnist"),
        Container::Bytes,
        vec![files::idx(0x801, &[2], &[1, 2])],
    );
    target.beside("mnist/train-images-idx3-ubyte", files::idx(0x803, &[2, 1, 2], &[1, 2, 3, 4])).boxed()
}

fn cifar() -> Box<dyn Target> {
    Records::make("cifar/train.bin", Some("cifar"), Container::Bytes, vec![vec![1; 3074]]).boxed()
}

fn sized(source: Source) -> Source {
    let images =
        ImageOptions { size: Some("3".parse().unwrap()), channels: Some(1), ..ImageOptions::default() };
    Source { images, ..source }
}

fn png() -> Box<dyn Target> {
    let good = files::images(ImageFormat::Png);
    let target = Records::make("images/a/x.png", Some("images"), Container::Png, good.clone());
    target.beside("images/b/x.png", &good[0]).with(sized).boxed()
}

fn jpeg() -> Box<dyn Target> {
    let good = files::images(ImageFormat::Jpeg);
    let target = Records::make("images/a/x.jpg", Some("images"), Container::Bytes, good.clone());
    target.beside("images/b/x.jpg", &good[0]).with(sized).boxed()
}

fn parquet_table() -> Box<dyn Target> {
    let codecs = [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW];
    let target =
        Records::make("t.parquet", None, Container::Bytes, codecs.map(files::parquet_table).to_vec());
    let schema = Some(target.folder.file("schema.toml"));
    let text = format!("{SCHEMA}[[columns]]\nname = \"t\"\ntype = \"category\"\nvalues = [\"x\", \"yes\"]\n")
        .replace("values = [\"x\", \"yes\"]\n[[", "values = [\"0\", \"1\"]\n[[")
        .replace("scale = 2.0", "missing = 0.0");
    target.beside("schema.toml", text).with(|source| Source { schema: schema.clone(), ..source }).boxed()
}

fn parquet_images() -> Box<dyn Target> {
    let target = Records::make("t.parquet", None, Container::Bytes, vec![files::parquet_images()]);
    target.with(|source| Source { classes: Some(2), ..sized(source) }).boxed()
}

/// Converts a source and returns the file.
fn converted(folder: &Folder, source: &Source) -> Vec<u8> {
    let path: PathBuf = folder.file("good.sordino");
    let _ = fs::remove_file(&path);
    convert(source, &path).unwrap();
    fs::read(path).unwrap()
}

fn cache() -> Box<dyn Target> {
    let mut target = Records::make("t.sordino", None, Container::Safetensors, Vec::new());
    let source = |name: &str, bytes: &[u8]| {
        let path = target.folder.file(name);
        fs::write(&path, bytes).unwrap();
        Source { path, classes: Some(2), ..Source::default() }
    };
    let table = source("t.csv", b"a,b\n1,0\n2,1\n");
    let text = Source {
        target: Some("b".to_owned()),
        tokenizer: Some("bytes".to_owned()),
        ..source("u.csv", b"a,b\nhi,0\nyou,1\n")
    };
    let y = files::npy("<i8", "(2,)", &[1_i64, 0].map(i64::to_le_bytes).concat());
    let arrays = archive(&[("x.npy".to_owned(), arrays().swap_remove(1)), ("y.npy".to_owned(), y)]).unwrap();
    let images = source("t.npz", &arrays);
    target.good = [table, text, images].iter().map(|source| converted(&target.folder, source)).collect();
    target.boxed()
}

fn text_lines() -> Box<dyn Target> {
    let good = texts(&["a good film\nanother one\n", "\u{feff}é\r\n\r\nx"]);
    let target = Records::make("reviews/pos.txt", Some("reviews"), Container::Text, good);
    let target = target.beside("reviews/neg.txt", "bad\n");
    target
        .with(|source| Source { tokenizer: Some("hashed,size=64".to_owned()), max_length: Some(8), ..source })
        .boxed()
}
