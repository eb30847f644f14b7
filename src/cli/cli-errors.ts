import { defineError } from '../base/errors.ts';

export const portInUse = defineError(
  'KVASIR_PORT_IN_USE',
  'Port {port} on {host} is in use. Stop the process that listens there, or choose another port with --port (0 lets the system choose).',
  500,
);
export const cannotListen = defineError(
  'KVASIR_CANNOT_LISTEN',
  'Cannot listen on {host}, port {port} ({reason}). Choose others with --host and --port.',
  500,
);
export const fileUnreadable = defineError(
  'KVASIR_FILE_UNREADABLE',
  'Cannot read the {what} {path}: {reason}. Check the path and its permissions.',
  500,
);
export const configFileInvalid = defineError(
  'KVASIR_CONFIG_FILE_INVALID',
  'The configuration file {path} is wrong: {reason}. Its keys are the flags of `kvasir serve` without --, and model.',
  400,
);
export const modelNameTwice = defineError(
  'KVASIR_MODEL_NAME_TWICE',
  'Two models have the name `{name}`. Give one of them another name in the section `models` of the file of --config.',
  400,
);
export const modelFolderTooLarge = defineError(
  'KVASIR_MODEL_FOLDER_TOO_LARGE',
  'The folder of models {path} has more than {limit} files and folders below it. Give --model-dir a folder that has only models.',
  400,
);
export const noSocketFolder = defineError(
  'KVASIR_NO_SOCKET_FOLDER',
  'No folder can hold the sockets of the models: {tried}. Set TMPDIR to a folder with a short path that can be written.',
  500,
);
export const textNotUtf8 = defineError(
  'KVASIR_TEXT_NOT_UTF8',
  'The {what} from {path} is not valid UTF-8. Convert it to UTF-8.',
  400,
);
export const serverUnreachable = defineError(
  'KVASIR_SERVER_UNREACHABLE',
  'The server at {url} does not answer: {reason}. Start it with `kvasir serve`, or correct the address.',
  502,
);
export const serverRefused = defineError(
  'KVASIR_SERVER_REFUSED',
  'The server at {url} answered with status {status}: {reason}.',
  502,
);
export const tracesProtocolNotSupported = defineError(
  'KVASIR_TRACES_PROTOCOL_NOT_SUPPORTED',
  'Traces cannot be sent by the protocol {protocol}, which an OTEL_EXPORTER_OTLP variable names. Set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf and name the HTTP port of the receiver, which is often 4318.',
  400,
);
