// Package resultcache says when two prompts have the same result, so that the second one need not
// run. It knows no queue and no instance.
//
// ComfyUI does this within one process: nodes whose inputs are those of the last prompt are not
// executed again. Here it is done for whole prompts, across instances, restarts and days. The rules
// are stricter than ComfyUI's, because more can change in that time:
//
//   - every node that the result depends on is of a class in a list, each read in ComfyUI's source:
//     what it gives depends on its inputs only, and noise on its seed;
//   - every input file is known by its content;
//   - every model file has the size and the time of its last change that it had when the result was
//     made, on the instance that made it, see [Subject.Stamp].
package resultcache
