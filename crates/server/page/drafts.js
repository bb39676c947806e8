// Drafts: the question that is being written in each conversation, and its files. Only this tab keeps them, over a reload: a draft
// may be private, and another person may use the browser later.

const QUESTIONS = "hone-draft-questions";
const FILES = "hone-draft-files";

/** Questions and files by the names of their conversations; the new conversation has the name null. */
const questions = kept(QUESTIONS);
const files = kept(FILES);

/** The draft of a conversation. */
export function of(name) {
  return { question: questions.get(name) ?? "", files: files.get(name) ?? [] };
}

/** Another question is being written in a conversation. */
export function keepQuestion(name, question) {
  put(questions, name, question);
  saveQuestions();
}

/** Other files go with it, or one of any conversation has been read. */
export function keepFiles(name, attached) {
  put(files, name, attached);
  saveFiles();
}

/** A conversation has another name. Its draft comes after one of that name. */
export function renamed(old, name) {
  if (old === name) return;
  const [draft, other] = [of(old), of(name)];
  removed(old);
  keepQuestion(name, joined(other.question, draft.question));
  keepFiles(name, [...other.files, ...draft.files]);
}

/** Two texts that are being written, one after the other. */
export function joined(first, second) {
  return [first, second].filter(Boolean).join("\n\n");
}

/** A conversation is gone. */
export function removed(name) {
  keepQuestion(name, "");
  keepFiles(name, []);
}

/** Another person may use this tab from now on. */
export function forget() {
  for (const key of [QUESTIONS, FILES]) sessionStorage.removeItem(key);
  for (const drafts of [questions, files]) drafts.clear();
}

function put(drafts, name, value) {
  if (value.length > 0) drafts.set(name, value);
  else drafts.delete(name);
}

/** Keeps the questions. If there is no room for them, the files make way. */
function saveQuestions() {
  const entries = [...questions];
  if (isSaved(QUESTIONS, entries)) return;
  sessionStorage.removeItem(FILES);
  isSaved(QUESTIONS, entries);
}

/** Keeps as many files as there is room for; the largest are left out first. */
function saveFiles() {
  const wanted = [...files.values()].flat().filter(({ text }) => text !== null);
  wanted.sort((one, other) => one.text.length - other.text.length);
  while (!isSaved(FILES, entriesOf(wanted))) wanted.pop();
}

function entriesOf(wanted) {
  const texts = (attached) => attached.filter((file) => wanted.includes(file)).map(({ name, text }) => ({ name, text }));
  return [...files].map(([name, attached]) => [name, texts(attached)]).filter(([, attached]) => attached.length > 0);
}

/** Whether there was room for the entries of a map; otherwise none of them is kept. */
function isSaved(key, entries) {
  sessionStorage.removeItem(key);
  if (entries.length === 0) return true;
  try {
    sessionStorage.setItem(key, JSON.stringify(entries));
    return true;
  } catch {
    return false;
  }
}

function kept(key) {
  try {
    return new Map(JSON.parse(sessionStorage.getItem(key)) ?? []);
  } catch {
    return new Map();
  }
}
