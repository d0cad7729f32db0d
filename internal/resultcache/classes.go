package resultcache

import (
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Repeatable reports whether what a node gives depends on its inputs only, so that it gives the same
// wherever and however often it runs.
func Repeatable(class string, inputs *pyjson.Object) bool {
	return repeatable(class) && settled(class, inputs)
}

// repeatable reports whether what nodes of a class give depends on their inputs only.
func repeatable(class string) bool {
	if len(folders(class)) > 0 || reads(class) != "" {
		return true
	}
	switch class {
	case "CLIPSetLastLayer", "ModelSamplingSD3", "ModelSamplingFlux", "ModelSamplingAuraFlow", "ModelSamplingDiscrete", "RescaleCFG", "FreeU", "FreeU_V2",
		"CLIPTextEncode", "CLIPTextEncodeSDXL", "CLIPTextEncodeFlux", "CLIPTextEncodeSD3", "CLIPVisionEncode", "FluxGuidance", "ReferenceLatent",
		"ConditioningZeroOut", "ConditioningCombine", "ConditioningConcat", "ConditioningAverage", "ConditioningSetArea", "ConditioningSetMask",
		"ConditioningSetTimestepRange", "ControlNetApply", "ControlNetApplyAdvanced", "InpaintModelConditioning", "unCLIPConditioning",
		"EmptyLatentImage", "EmptySD3LatentImage", "EmptyFlux2LatentImage", "LatentFromBatch", "RepeatLatentBatch", "LatentUpscale", "LatentUpscaleBy",
		"SetLatentNoiseMask", "VAEEncode", "VAEEncodeForInpaint", "VAEEncodeTiled", "VAEDecode", "VAEDecodeTiled",
		"KSampler", "KSamplerAdvanced", "SamplerCustom", "SamplerCustomAdvanced", "KSamplerSelect", "BasicScheduler", "KarrasScheduler", "Flux2Scheduler",
		"SplitSigmas", "RandomNoise", "BasicGuider", "CFGGuider",
		"EmptyImage", "ImageScale", "ImageScaleBy", "ImageScaleToTotalPixels", "ImageScaleToMaxDimension", "ImageUpscaleWithModel", "ImageInvert", "ImageBatch",
		"ImagePadForOutpaint", "ImageCrop", "ImageBlend", "ImageBlur", "ImageSharpen", "GetImageSize",
		"MaskToImage", "ImageToMask", "InvertMask", "GrowMask", "FeatherMask", "SolidMask", "MaskComposite", "ImageCompositeMasked",
		"PrimitiveInt", "PrimitiveFloat", "PrimitiveString", "PrimitiveStringMultiline", "PrimitiveBoolean",
		"SaveImage", "PreviewImage":
		return true
	}
	return false
}

// folders are the model folders that a class loads from, by the input that names the file; nil for
// other classes.
func folders(class string) map[string]string {
	switch class {
	case "CheckpointLoaderSimple":
		return map[string]string{"ckpt_name": "checkpoints"}
	case "UNETLoader":
		return map[string]string{"unet_name": "diffusion_models"}
	case "VAELoader":
		return map[string]string{"vae_name": "vae"}
	case "CLIPLoader":
		return map[string]string{"clip_name": "text_encoders"}
	case "DualCLIPLoader", "TripleCLIPLoader":
		loads := map[string]string{"clip_name1": "text_encoders", "clip_name2": "text_encoders"}
		if class == "TripleCLIPLoader" {
			loads["clip_name3"] = "text_encoders"
		}
		return loads
	case "CLIPVisionLoader":
		return map[string]string{"clip_name": "clip_vision"}
	case "LoraLoader", "LoraLoaderModelOnly":
		return map[string]string{"lora_name": "loras"}
	case "ControlNetLoader":
		return map[string]string{"control_net_name": "controlnet"}
	case "UpscaleModelLoader":
		return map[string]string{"model_name": "upscale_models"}
	}
	return nil
}

// reads is the input of a class that names an input file, "" for none.
func reads(class string) string {
	switch class {
	case "LoadImage", "LoadImageMask":
		return "image"
	}
	return ""
}

// settled reports whether the literals of a node leave nothing to chance or to the clock.
func settled(class string, inputs *pyjson.Object) bool {
	switch class {
	case "KSamplerAdvanced": // otherwise its sampler may draw from a generator that nobody has seeded
		return inputs.String("add_noise") == "enable"
	case "SamplerCustom":
		noise, _ := inputs.Get("add_noise")
		return noise == pyjson.Bool(true)
	case "SaveImage": // the name may have the date
		v, _ := inputs.Get("filename_prefix")
		prefix, literal := v.(pyjson.String)
		return literal && !strings.Contains(string(prefix), "%")
	}
	return true
}
