// Package split says whether several GPUs can make what a graph makes together, writes the graphs of
// the parts, and puts their outputs together. It knows no job and no instance. A [Plan] is for the
// pictures of a batch, and [Branches] are for outputs that share little.
//
// # Batches
//
// A part of a batch has a LatentFromBatch node behind the empty latent. That node notes which pictures of
// the batch its latents are, and ComfyUI's samplers then draw the noise of just those pictures,
// one after the other. The pictures are those of the whole batch only if
//
//   - the noise of one picture is as many numbers as torch draws at once, or a multiple of that;
//   - the sampler draws no further noise on its way, which would be drawn for the whole batch;
//   - no node in between looks at more than one picture.
//
// So such a graph is split if every node that it needs is of a class in a list, and each entry of
// that list was read in ComfyUI's source. No other graph is split as a batch.
//
// # Outputs
//
// A part of branches is the whole graph, of which an instance runs some outputs only. ComfyUI runs
// what these need, and nothing else, in the order in which it would have run it anyway, so all that
// can differ is what several parts run: each node that more than one output needs is either of a class
// that gives the same each time, see [resultcache.Repeatable], or these outputs stay together. All
// nodes must be ComfyUI's own, since others may share more than links. The outputs themselves only
// write files, whose numbers are the hub's to give.
//
// # What was measured
//
// With torch 2.8 on a CPU and prepare_noise of ComfyUI 0.33, batches of 8, 7 and 5 in 4, 3 and 5
// parts, float32 and float16: of 23 shapes, the noise of the 18 whose pictures have a multiple of
// 16 numbers was equal bit by bit, such as 4x104x152, 16x65x65 and 4x2x2. That of the five others
// was not: 4x65x65, 4x65x66, 4x9x13, 4x2x3 and 12x1x9x9.
//
// ComfyUI 0.33 resizes an empty latent to the scale of the model, before it draws. That keeps the rule:
// of the models with less than 16 channels none makes the latent smaller, and the one with 24 halves
// its sides, of which not both are odd then.
//
// With ComfyUI 0.33's samplers on a function that treats each picture alone, a batch of 8 and its
// parts of 3, 3 and 2 were equal bit by bit for each sampler in [exact], with sigmas of both kinds
// of models. They were not for the ancestral and SDE samplers, ddpm, er_sde, seeds_2, seeds_3 and
// dpm_adaptive; lcm was only read. Samplers that may draw noise are not in the list even where they were equal:
// dpm_fast, sa_solver and sa_solver_pece.
//
// What is equal is the arithmetic. A GPU may round otherwise for a batch of 2 than for one of 8, as
// two kinds of GPUs do for the same batch. A checkpoint whose latents are in several pieces, as
// those of films with sound, cannot be told from others by the graph if CheckpointLoaderSimple
// loads it: its noise for the second piece begins elsewhere in a part.
package split
