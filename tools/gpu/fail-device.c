/**
 * Makes Vulkan fail, for tests. A submission that finds the file of the variable LOSE_DEVICE deletes it and reports a lost device. After
 * DEVICE_BUFFERS buffers, the device has no memory for another one. Processes load this before the C library (LD_PRELOAD).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VK_ERROR_OUT_OF_DEVICE_MEMORY = -2, VK_ERROR_DEVICE_LOST = -4 };

typedef void (*Function)(void);
typedef int32_t (*Submit)(void *queue, uint32_t count, const void *submissions, void *fence);
typedef int32_t (*Allocate)(void *device, const void *info, const void *allocator, void *memory);

static Submit submit;
static Allocate allocate;

static int32_t submit_or_lose(void *queue, uint32_t count, const void *submissions, void *fence) {
  const char *file = getenv("LOSE_DEVICE");
  if (file != NULL && unlink(file) == 0) return VK_ERROR_DEVICE_LOST;
  return submit(queue, count, submissions, fence);
}

static int32_t allocate_if_not_full(void *device, const void *info, const void *allocator, void *memory) {
  static int count;
  const char *most = getenv("DEVICE_BUFFERS");
  if (most != NULL && ++count > atoi(most)) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  return allocate(device, info, allocator, memory);
}

Function vkGetInstanceProcAddr(void *instance, const char *name) {
  static Function (*find)(void *, const char *);
  if (find == NULL) *(void **)&find = dlsym(dlopen("libvulkan.so.1", RTLD_LAZY), "vkGetInstanceProcAddr");
  const Function found = find(instance, name);
  if (found != NULL && strcmp(name, "vkQueueSubmit") == 0) {
    submit = (Submit)found;
    return (Function)submit_or_lose;
  }
  if (found != NULL && strcmp(name, "vkAllocateMemory") == 0) {
    allocate = (Allocate)found;
    return (Function)allocate_if_not_full;
  }
  return found;
}
