//! What a model file is made for, by its header.

use hone_protocol::ModelFile;

use super::{ModelError, check_vocabulary};
use crate::decoder::DecoderSpec;
use crate::encoder::EncoderRow;
use crate::gguf::Gguf;
use crate::heads::{decision_type, has_head, is_reward_model};
use crate::template::{ChatTemplate, TemplateError, TemplateHost};
use crate::tokenizer::Tokenizer;

/// The purpose of a model file.
#[derive(Debug)]
pub enum FileUse {
    /// Answers conversations.
    Chats,
    /// Continues texts; the error says why it cannot chat.
    Continues(TemplateError),
    /// Turns texts into vectors.
    Embeds,
    /// Scores texts.
    Scores,
}

/// What a model gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelPurpose {
    /// Answers, or continuations of texts.
    Text,
    /// Vectors for texts.
    Vectors,
    /// Scores for texts.
    Scores,
    /// A reward for a conversation that ends with an answer: a number that is higher for better answers.
    Rewards,
}

/// The purpose of a model by the header of its file, which is not checked any further; `None` if it cannot be read.
pub fn model_purpose(file: &ModelFile) -> Option<ModelPurpose> {
    let gguf = Gguf::open_region(file).ok()?;
    Some(match check_answers(&gguf) {
        Err(ModelError::Encoder { .. }) if !has_head(&gguf) => ModelPurpose::Vectors,
        Err(ModelError::Head) if is_reward_model(&gguf) => ModelPurpose::Rewards,
        Err(ModelError::Encoder { .. } | ModelError::Head) => ModelPurpose::Scores,
        _ => ModelPurpose::Text,
    })
}

/// Determines the purpose of a model file, as far as its header states it.
///
/// # Errors
/// When the file cannot be loaded; the error says why.
pub fn check_file(file: &ModelFile, templates: &TemplateHost) -> Result<FileUse, ModelError> {
    let gguf = Gguf::open_region(file)?;
    match check_answers(&gguf) {
        Err(ModelError::Encoder { .. }) => {
            Tokenizer::from_gguf(&gguf)?;
            return Ok(if has_head(&gguf) { FileUse::Scores } else { FileUse::Embeds });
        }
        Ok(()) | Err(ModelError::Head) => {}
        Err(error) => return Err(error),
    }
    let spec = DecoderSpec::from_gguf(&gguf, None)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    check_vocabulary(&tokenizer, &spec)?;
    if has_head(&gguf) {
        return Ok(FileUse::Scores);
    }
    let template = ChatTemplate::from_gguf(&gguf, &tokenizer, templates).and_then(|template| template.check());
    Ok(template.map_or_else(FileUse::Continues, |()| FileUse::Chats))
}

/// Checks that a file is not made for a purpose other than answering.
pub(crate) fn check_answers(gguf: &Gguf) -> Result<(), ModelError> {
    if let Some(kind) = decision_type(gguf) {
        return Err(ModelError::Decision { kind });
    }
    if let Some(row) = gguf.string("general.architecture")?.and_then(EncoderRow::named) {
        return Err(ModelError::Encoder { architecture: row.name });
    }
    if has_head(gguf) { Err(ModelError::Head) } else { Ok(()) }
}
