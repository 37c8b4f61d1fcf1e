//! PNG and JPEG files: a folder for each class, or a folder of images for prediction.

use std::path::{Path, PathBuf};

use sordino_nn::Shape;

use super::sets::{Content, ImageSets, Images, StoredImage};
use super::{EXTENSIONS, ImageOptions};
use crate::class_folders::{self, ClassFile, Parts};
use crate::dataset::Dataset;
use crate::encoding::Encoding;
use crate::error::DataError;
use crate::unlabelled::UnlabelledRows;

/// Handles a problem of a folder: returns it as an error, or notes it and continues.
type Note<'a> = &'a mut dyn FnMut(DataError) -> Result<(), DataError>;

/// The images of a folder with a subfolder for each class, with a test set if there is one. `note` receives the folders and files
/// that are not permitted.
pub(crate) fn sets(
    folder: &Path,
    classes: Option<usize>,
    options: &ImageOptions,
    note: Note<'_>,
) -> Result<ImageSets, DataError> {
    let shape = options.shape(&folder.display().to_string(), None)?;
    let parts = Parts::of(folder);
    let names = class_folders::names(&parts.train, classes)?;
    let train = set(&parts.train, &names, note)?;
    let test = parts.test.map(|test| set(&test, &names, note)).transpose()?;
    Ok(ImageSets { shape, names, train, test })
}

fn set(folder: &Path, names: &[String], note: Note<'_>) -> Result<Images, DataError> {
    Ok(images(folder, class_folders::files(folder, names, &EXTENSIONS, note)?))
}

/// Reads the test set of a folder, or its only set, with the classes, the shape and the encoding of the training records.
pub(crate) fn read_test(
    folder: &Path,
    train: &Dataset,
    options: &ImageOptions,
) -> Result<Dataset, DataError> {
    let shape = options.shape(&folder.display().to_string(), Some(train.shape()))?;
    let parts = Parts::of(folder);
    let images = set(&parts.test.unwrap_or(parts.train), train.classes(), &mut Err)?;
    images.labelled(shape, train.classes(), Some(train.encoding()))
}

/// Reads images without labels: those of a folder, those of the folders of its classes, or one file. Their ids are their names.
pub(crate) fn read_unlabelled(
    path: &Path,
    options: &ImageOptions,
    wanted: Option<Encoding>,
    known: Option<Shape>,
) -> Result<UnlabelledRows, DataError> {
    let shape = options.shape(&path.display().to_string(), known)?;
    let (files, part) = match path.is_dir() {
        false => (vec![ClassFile::single(path)], None),
        true => {
            let parts = Parts::of(path);
            let split = parts.train != path;
            let part = parts.test.unwrap_or(parts.train);
            let files = class_folders::all_files(&part, &EXTENSIONS)?;
            (files, split.then(|| part.display().to_string()))
        }
    };
    let ids = files.iter().map(|file| file.id.clone()).collect();
    let (records, refused) = images(path, files).unlabelled(shape, wanted)?;
    Ok(UnlabelledRows { part, ..UnlabelledRows::new(records, refused, Some(ids)) })
}

/// The numbers of the images and classes of a folder for each class; no image is read.
pub(crate) fn count(folder: &Path) -> Result<Vec<(String, String)>, DataError> {
    let parts = Parts::of(folder);
    let names = class_folders::names(&parts.train, None)?;
    let sets = [("training records", Some(parts.train)), ("test records", parts.test)];
    let describe = |(name, folder): (&str, Option<PathBuf>)| {
        let count = class_folders::files(&folder?, &names, &EXTENSIONS, &mut Err).map(|files| files.len());
        Some(count.map(|count| (name.to_owned(), format!("{count} images; {} classes", names.len()))))
    };
    sets.into_iter().filter_map(describe).collect()
}

/// The images in these files.
fn images(folder: &Path, files: Vec<ClassFile>) -> Images {
    let image = |ClassFile { path, class, .. }: ClassFile| {
        let place = path.display().to_string();
        Ok(StoredImage { place, content: Content::File(path), class: Ok(class) })
    };
    Images { file: folder.display().to_string(), images: Box::new(files.into_iter().map(image)) }
}
