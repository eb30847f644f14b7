import { deserialize, serialize } from 'node:v8';
import { describe, expect, it } from 'vitest';
import { assert } from '../base/assert.ts';
import { defineError, KvasirError } from '../base/errors.ts';
import { decodeError, encodeError } from './error-codec.ts';

const fileGone = defineError('KVASIR_FILE_GONE', 'File {path} is gone.', 404, { retryable: true });
const travel = (error: unknown): Error => decodeError(deserialize(serialize(encodeError(error))));

describe('errors between processes', () => {
  it('from a catalogue keep code, message, status, fields and cause', () => {
    // A value that looks like a placeholder must not be replaced.
    const error = fileGone({ path: '/a {path}' }, new Error('ENOENT'));
    const arrived = travel(error);
    expect(arrived).toBeInstanceOf(KvasirError);
    expect(arrived).toMatchObject({
      code: 'KVASIR_FILE_GONE',
      message: 'File /a {path} is gone.',
      httpStatus: 404,
      retryable: true,
      fields: { path: '/a {path}' },
      cause: new Error('ENOENT'),
    });
  });

  it('from an assertion keep name, message and stack', () => {
    let thrown: unknown;
    try {
      assert(false, 'one is two');
    } catch (error) {
      thrown = error;
    }
    const arrived = travel(thrown);
    expect(arrived).toMatchObject({ name: 'AssertionError', message: 'one is two' });
    expect(arrived.stack).toBe((thrown as Error).stack);
  });

  it('from a thrown string become an Error with this message', () => expect(travel('boo')).toEqual(new Error('boo')));
});
