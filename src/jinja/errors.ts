/** The source is not a template. */
export class TemplateSyntaxError extends Error {
  readonly line: number;

  constructor(message: string, line: number) {
    super(`${message} (line ${line})`);
    this.line = line;
  }
}

/** The template failed while it was rendered. The message has Python's words where Python has an error of this kind. */
export class TemplateError extends Error {}

/** The template asked for this error with `raise_exception`. */
export class RaisedError extends TemplateError {}
