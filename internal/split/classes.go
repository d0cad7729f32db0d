package split

import (
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Inserted is the class of the node behind the empty latent. An instance without it takes no part.
const Inserted = "LatentFromBatch"

// Relies reports whether parts rely on what nodes of a class do, so that it must be ComfyUI's own
// wherever one is made.
func Relies(class string) bool {
	return class == Inserted || scaleOf(class) > 0 || carrier(class) != "" || setsUp(class)
}

// scaleOf is the size of a latent pixel in picture pixels of a class of empty latents, 0 for other
// classes.
func scaleOf(class string) int {
	switch class {
	case "EmptyLatentImage", "EmptySD3LatentImage":
		return 8
	case "EmptyFlux2LatentImage":
		return 16
	}
	return 0
}

// carrier is the input of a class that may carry the batch. The node does the same to each
// picture in it, whatever the others are.
func carrier(class string) string {
	switch class {
	case "KSampler", "KSamplerAdvanced": // the noise by the index of the picture; see exact
		return "latent_image"
	case "VAEDecode": // one picture after the other, or as many at once as fit the memory
		return "samples"
	case "ImageScale", "ImageScaleBy", "ImageInvert": // interpolation within a picture; 1 - x
		return "image"
	case "ImageUpscaleWithModel": // tiles of one picture after the other
		return "image"
	case "SaveImage", "PreviewImage": // a file for each picture, in order
		return "images"
	}
	return ""
}

// setsUp reports whether nodes of a class make what is the same for all pictures: models, and
// conditions for one picture that ComfyUI repeats for each of the batch.
func setsUp(class string) bool {
	switch class {
	case "CheckpointLoaderSimple", "UNETLoader", "VAELoader", "CLIPLoader", "DualCLIPLoader", "UpscaleModelLoader",
		"LoraLoader", "LoraLoaderModelOnly", "CLIPSetLastLayer",
		"ModelSamplingSD3", "ModelSamplingFlux", "ModelSamplingAuraFlow",
		"CLIPTextEncode", "CLIPTextEncodeSDXL", "CLIPTextEncodeFlux", "FluxGuidance",
		"ConditioningZeroOut", "ConditioningCombine", "ConditioningConcat", "ConditioningAverage":
		return true
	}
	return false
}

// exact reports whether a sampler's steps draw no noise and take the same steps whatever the batch
// is. Those that are not here draw noise for the whole batch (the ancestral and the SDE ones, ddpm,
// lcm, er_sde, seeds, sa_solver) or choose their steps by the error of the whole batch
// (dpm_adaptive). ddim draws noise too, but only for masks.
func exact(sampler string) bool {
	switch sampler {
	case "euler", "euler_cfg_pp", "heun", "heunpp2", "exp_heun_2_x0", "dpm_2", "lms", "dpmpp_2m", "dpmpp_2m_cfg_pp",
		"ipndm", "ipndm_v", "deis", "res_multistep", "res_multistep_cfg_pp", "gradient_estimation", "gradient_estimation_cfg_pp",
		"ddim", "uni_pc", "uni_pc_bh2":
		return true
	}
	return false
}

// fits reports whether the literals of a node of one of these classes allow a split.
func fits(class string, inputs *pyjson.Object) bool {
	switch class {
	case "KSampler", "KSamplerAdvanced":
		return exact(inputs.String("sampler_name"))
	case "SaveImage": // each part counts its pictures from 0
		_, literal := literalText(inputs, "filename_prefix")
		return literal && !strings.Contains(inputs.String("filename_prefix"), "%batch_num%")
	case "CLIPLoader": // the others are of models of sound and films, whose noise is in several pieces
		return slices.Contains([]string{"stable_diffusion", "sd3", "pixart", "lumina2", "hidream", "chroma", "omnigen2", "qwen_image", "flux2"}, inputs.String("type"))
	case "DualCLIPLoader":
		return slices.Contains([]string{"sdxl", "sd3", "flux", "hidream"}, inputs.String("type"))
	}
	return true
}

func literalText(inputs *pyjson.Object, name string) (string, bool) {
	v, _ := inputs.Get(name)
	text, ok := v.(pyjson.String)
	return string(text), ok
}
