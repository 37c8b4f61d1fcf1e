//! Damaged and malicious files: exit code 2, a message with the file and the place, no panic, and no partly written files.

use std::{
    fs::{self, File},
    io::{Cursor, Write},
    path::Path,
};

use image::GrayImage;

use crate::place::Place;

/// A folder with one damaged file, and what the message must contain.
struct Case {
    name: &'static str,
    prepare: fn(&Path),
    flags: &'static str,
    parts: &'static [&'static str],
}

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn png() -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    GrayImage::from_pixel(8, 8, image::Luma([7])).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

/// A file of 4 GB that begins with these bytes, followed by zeros that take no space on disk.
fn four_gigabytes(path: &Path, begin: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = File::create(path).unwrap();
    file.write_all(begin.as_bytes()).unwrap();
    file.set_len(4 << 30).unwrap();
}

/// An archive with an array whose header states this shape, but which has more zeros than that.
fn bomb(shape: &str, zeros: usize) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
    let mut array = b"\x93NUMPY\x01\x00".to_vec();
    array.extend((header.len() as u16).to_le_bytes());
    array.extend(header.bytes());
    array.resize(array.len() + zeros, 0);
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    archive.start_file("x.npy", options.compression_method(zip::CompressionMethod::Deflated)).unwrap();
    archive.write_all(&array).unwrap();
    archive.finish().unwrap().into_inner()
}

/// Copies a file of the pre-trained BERT of the tests of `sordino-nn`, with a change.
fn model(folder: &Path, name: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/fixtures/pretrained/bert").join(name);
    write(folder, &format!("bert/{name}"), change(fs::read(source).unwrap()));
}

/// The pre-trained model, a tokenizer for it, and reviews.
fn tuned(folder: &Path) {
    model(folder, "config.json", |bytes| bytes);
    model(folder, "model.safetensors", |bytes| bytes);
    write(folder, "bert/tokenizer.json", wordpiece());
    for number in 0..10 {
        write(folder, &format!("reviews/a/{number}.txt"), "a good film");
        write(folder, &format!("reviews/b/{number}.txt"), "unhelpful");
    }
}

fn wordpiece() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/wordpiece.json");
    fs::read_to_string(path).unwrap()
}

const CASES: &[Case] = &[
    Case {
        name: "a truncated PNG",
        prepare: |folder| {
            write(folder, "pictures/a/1.png", png());
            write(folder, "pictures/b/1.png", &png()[..40]);
        },
        flags: "--data pictures --image-size 8 --channels 1",
        parts: &["pictures/b/1.png: the image cannot be read"],
    },
    Case {
        name: "invalid UTF-8 in a folder of texts",
        prepare: |folder| {
            write(folder, "reviews/a/1.txt", "good");
            write(folder, "reviews/b/1.txt", b"b\xffd");
        },
        flags: "--data reviews",
        parts: &["reviews/b/1.txt, column 1 (text): must be UTF-8"],
    },
    Case {
        name: "invalid UTF-8 in a line",
        prepare: |folder| {
            write(folder, "names/a.txt", "one\ntwo\n");
            write(folder, "names/b.txt", b"three\nf\xffur\n");
        },
        flags: "--data names",
        parts: &["names/b.txt, line 2, column 1 (text): must be UTF-8"],
    },
    Case {
        name: "a line of 4 GB in a CSV file",
        prepare: |folder| four_gigabytes(&folder.join("t.csv"), "a,b\n1,0\n"),
        flags: "--data t.csv --classes 2",
        parts: &["t.csv, line 3: is longer than 64 MiB"],
    },
    Case {
        name: "a line of 4 GB in JSON Lines",
        prepare: |folder| four_gigabytes(&folder.join("t.jsonl"), "{\"a\": 1, \"b\": 0}\n"),
        flags: "--data t.jsonl --classes 2 --target b",
        parts: &["t.jsonl, line 2: is longer than 64 MiB"],
    },
    Case {
        name: "a line of 4 GB in a file of texts",
        prepare: |folder| {
            four_gigabytes(&folder.join("names/a.txt"), "one\n");
            write(folder, "names/b.txt", "two\n");
        },
        flags: "--data names",
        parts: &["names/a.txt, line 2: is longer than 64 MiB"],
    },
    Case {
        name: "a text of 4 GB",
        prepare: |folder| {
            four_gigabytes(&folder.join("reviews/a/1.txt"), "good");
            write(folder, "reviews/b/1.txt", "bad");
        },
        flags: "--data reviews",
        parts: &["reviews/a/1.txt: is longer than 64 MiB"],
    },
    Case {
        name: "a zip bomb",
        prepare: |folder| write(folder, "t.npz", bomb("(4, 1)", 4 << 20)),
        flags: "--data t.npz --classes 2",
        parts: &["t.npz, array x: the archive has ", "but its header states"],
    },
    Case {
        name: "a CIFAR file of another size",
        prepare: |folder| {
            for batch in 1..=5 {
                write(
                    folder,
                    &format!("cifar/data_batch_{batch}.bin"),
                    vec![1; 2 * 3073 - usize::from(batch == 4)],
                );
            }
            write(folder, "cifar/test_batch.bin", vec![1; 3073]);
        },
        flags: "--data cifar",
        parts: &["data_batch_4.bin, record 2: the file ends within the record, after 3072 of 3073 bytes"],
    },
    Case {
        name: "a truncated Parquet file",
        prepare: |folder| write(folder, "t.parquet", b"PAR1 and then nothing"),
        flags: "--data t.parquet --classes 2",
        parts: &["t.parquet: cannot be read"],
    },
    Case {
        name: "config.json that disagrees with the weights",
        prepare: |folder| {
            tuned(folder);
            model(folder, "config.json", |bytes| {
                let text = String::from_utf8(bytes).unwrap();
                text.replace("\"intermediate_size\": 12", "\"intermediate_size\": 13").into_bytes()
            });
        },
        flags: "--data reviews --model bert",
        parts: &["bert/model.safetensors: ", "has shape [12, 8], but config.json requires [13, 8]"],
    },
    Case {
        name: "truncated weights",
        prepare: |folder| {
            tuned(folder);
            model(folder, "model.safetensors", |bytes| bytes[..bytes.len() - 5].to_vec());
        },
        flags: "--data reviews --model bert",
        parts: &["bert/model.safetensors: not a safetensors file"],
    },
    Case {
        name: "a truncated tokenizer",
        prepare: |folder| {
            tuned(folder);
            write(folder, "bert/tokenizer.json", &wordpiece()[..300]);
        },
        flags: "--data reviews --model bert",
        parts: &["bert/tokenizer.json: is not a tokenizer.json"],
    },
    Case {
        name: "a tokenizer without a token for unknown words",
        prepare: |folder| {
            tuned(folder);
            let text = wordpiece().replace("\"unk_token\":\"[UNK]\"", "\"unk_token\":\"[OTHER]\"");
            write(folder, "bert/tokenizer.json", text);
        },
        flags: "--data reviews --model bert",
        parts: &["bert/tokenizer.json: cannot encode a text"],
    },
    Case {
        name: "a tokenizer with tokens that the model does not have",
        prepare: |folder| {
            tuned(folder);
            let text = wordpiece().replace("\"good\":6", "\"good\":60");
            write(folder, "bert/tokenizer.json", text);
        },
        flags: "--data reviews --model bert",
        parts: &["the model in bert reads records of 11 tokens of 20, but the data has 11 tokens of 61"],
    },
];

#[test]
fn bad_files_are_refused_with_their_place_and_nothing_is_written() {
    for case in CASES {
        let place = Place::new("bad-files");
        (case.prepare)(&place.0);
        let before = names(&place.0);
        for command in [
            format!("train {} --out run", case.flags),
            format!("data convert {} --out t.sordino", case.flags.strip_prefix("--data ").unwrap()),
        ] {
            if command.starts_with("data") && command.contains("--model") {
                continue;
            }
            let message = place.refusal(&command);
            for part in case.parts {
                assert!(message.contains(part), "{}: {message}", case.name);
            }
            assert!(message.contains("\nhint: "), "{}: {message}", case.name);
            assert_eq!(names(&place.0), before, "{}", case.name);
        }
    }
}

/// The names in a folder, including hidden ones.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn tokens_of_another_tokenizer_are_refused_for_a_public_model() {
    let place = Place::new("other-tokens");
    tuned(&place.0);
    place.text("data convert reviews --out hashed.sordino");
    let message = place.refusal("train --data hashed.sordino --model bert --out run");
    assert!(message.contains("bert/tokenizer.json, which the model needs"), "{message}");
    place.text("data convert reviews --tokenizer bert/tokenizer.json --max-length 11 --out own.sordino");
    place.text_with_notes("train --data own.sordino --model bert --steps 1 --batch-size 1 --out run");
    assert!(place.read("run/public_model.toml").contains("bert/tokenizer.json"));
    place.write("bert/tokenizer.json", &wordpiece().replace("\"good\"", "\"evil\""));
    let message = place.refusal("train --data own.sordino --model bert --out again");
    assert!(message.contains("bert/tokenizer.json: is a different tokenizer"), "{message}");
    let message = place.refusal("predict --run run --data own.sordino");
    assert!(message.contains("the public model that this model builds on has changed"), "{message}");
}
