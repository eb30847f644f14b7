/**
 * Makes Vulkan report a lost device: the submission that finds the file of the variable LOSE_DEVICE deletes it and fails. Processes load
 * this before the C library (LD_PRELOAD). `test/gpu/device-lost.gpu.ts` compiles it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VK_ERROR_DEVICE_LOST = -4 };

typedef void (*Function)(void);
typedef int32_t (*Submit)(void *queue, uint32_t count, const void *submissions, void *fence);

static Submit submit;

static int32_t submit_or_lose(void *queue, uint32_t count, const void *submissions, void *fence) {
  const char *file = getenv("LOSE_DEVICE");
  if (file != NULL && unlink(file) == 0) return VK_ERROR_DEVICE_LOST;
  return submit(queue, count, submissions, fence);
}

Function vkGetInstanceProcAddr(void *instance, const char *name) {
  static Function (*find)(void *, const char *);
  if (find == NULL) *(void **)&find = dlsym(dlopen("libvulkan.so.1", RTLD_LAZY), "vkGetInstanceProcAddr");
  const Function found = find(instance, name);
  if (found == NULL || strcmp(name, "vkQueueSubmit") != 0) return found;
  submit = (Submit)found;
  return (Function)submit_or_lose;
}
