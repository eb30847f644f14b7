/** The last layers of a model on a GPU, and what each device needs for it. */
export interface Division {
  /** On the GPU. */
  readonly layers: number;
  readonly onGpu: DeviceNeeds;
  /** Zero if all layers are on the GPU. */
  readonly onCpu: DeviceNeeds;
  /** KV that must fit on the GPU beside the weights. */
  readonly poolBytes: number;
}

export interface DeviceNeeds {
  readonly weightBytes: number;
  /** Of the device's part of a KV block. */
  readonly blockBytes: number;
}
