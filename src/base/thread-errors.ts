import { defineError } from './errors.ts';

/** Errors of jobs on threads (`job-thread.ts`). */
export const threadUnavailable = defineError(
  'KVASIR_THREAD_UNAVAILABLE',
  '{work} is not possible now: the thread for it cannot start ({reason}). Send the request again later.',
  503,
  { retryable: true },
);
export const jobStopped = defineError(
  'KVASIR_JOB_STOPPED',
  '{work} was stopped because {reason}. Send the request again later, or send less.',
  503,
  { retryable: true },
);
