package a1111

import (
	"path"
	"strings"
)

// Meaning is what a member of a request, or a setting, does at a server.
type Meaning int

const (
	// Closed are members that no client needs to send, or that reach beyond the request:
	// folders, scripts, and whatever is not known here.
	Closed Meaning = iota
	// Harmless are members that change the picture and nothing else, and those about sizes.
	Harmless
	// Picture is a picture in base64. A server would fetch it if it was an address.
	Picture
	// Prompt is a text in which tags and the names of embeddings load models.
	Prompt
	// Model is the name of a file of a model, or a list of them.
	Model
	// Checkpoint is the name of a checkpoint, in any form in which A1111 takes one.
	Checkpoint
	// Styles are names of texts that lie on the server.
	Styles
	// Settings is an object of settings that hold for the request.
	Settings
	// Script is the name of a script, ScriptArgs what it is given, and Scripts an object of
	// scripts that run beside it.
	Script
	ScriptArgs
	Scripts
)

// words maps each of some names to one meaning.
func words(m Meaning, names string, into map[string]Meaning) {
	for name := range strings.FieldsSeq(names) {
		into[name] = m
	}
}

// members are those of the requests for txt2img and img2img of A1111 1.10.1, and the harmless
// ones that Forge and SD.Next have besides.
var members = func() map[string]Meaning {
	all := map[string]Meaning{}
	words(Harmless, `seed subseed subseed_strength seed_resize_from_h seed_resize_from_w sampler_name sampler_index scheduler batch_size n_iter steps
		cfg_scale width height restore_faces tiling do_not_save_samples do_not_save_grid eta denoising_strength s_min_uncond s_churn s_tmax s_tmin s_noise
		override_settings_restore_afterwards refiner_switch_at disable_extra_networks comments send_images force_task_id
		enable_hr firstphase_width firstphase_height hr_scale hr_second_pass_steps hr_resize_x hr_resize_y hr_sampler_name hr_scheduler
		resize_mode image_cfg_scale mask_blur mask_blur_x mask_blur_y mask_round inpainting_fill inpaint_full_res inpaint_full_res_padding
		inpainting_mask_invert initial_noise_multiplier include_init_images
		distilled_cfg_scale hr_cfg hr_distilled_cfg clip_skip refiner_steps refiner_start full_quality cfg_end diffusers_guidance_rescale`, all)
	words(Prompt, "prompt negative_prompt hr_prompt hr_negative_prompt refiner_prompt refiner_negative", all)
	words(Picture, "init_images mask", all)
	words(Checkpoint, "refiner_checkpoint hr_checkpoint_name", all)
	words(Model, "hr_upscaler hr_additional_modules", all)
	words(Styles, "styles", all)
	words(Settings, overrides, all)
	words(Script, "script_name", all)
	words(ScriptArgs, "script_args", all)
	words(Scripts, "alwayson_scripts", all)
	return all
}()

// extras are the members of all other requests.
var extras = func() map[string]Meaning {
	all := map[string]Meaning{}
	words(Picture, "image imageList", all)
	words(Model, "upscaler_1 upscaler_2", all)
	words(Harmless, `resize_mode show_extras_results gfpgan_visibility codeformer_visibility codeformer_weight upscaling_resize upscaling_resize_w
		upscaling_resize_h upscaling_crop extras_upscaler_2_visibility upscale_first model`, all)
	return all
}()

// settings are those that a client may set for its own request. A1111 has hundreds, which
// decide where files are written and what the filter lets through, too.
var settings = func() map[string]Meaning {
	all := map[string]Meaning{}
	words(Checkpoint, overrideCheckpoint+" sd_model_refiner", all)
	words(Model, "sd_vae sd_unet sd_hypernetwork sd_lora forge_additional_modules upscaler_for_img2img", all)
	words(Harmless, `CLIP_stop_at_last_layers samples_format jpeg_quality webp_lossless enable_pnginfo eta_noise_seed_delta eta_ddim eta_ancestral
		ddim_discretize s_churn s_tmin s_tmax s_noise s_min_uncond s_min_uncond_all sigma_min sigma_max rho k_sched_type sgm_noise_multiplier
		always_discard_next_to_last_sigma uni_pc_variant uni_pc_skip_type uni_pc_order uni_pc_lower_order_final sd_noise_schedule
		randn_source token_merging_ratio token_merging_ratio_img2img token_merging_ratio_hr enable_quantization emphasis use_old_emphasis_implementation
		use_old_karras_scheduler_sigmas no_dpmpp_sde_batch_determinism skip_early_cond pad_cond_uncond pad_cond_uncond_v0 batch_cond_uncond
		fp8_storage cache_fp16_weight upcast_attn comma_padding_backtrack sdxl_crop_top sdxl_crop_left sdxl_refiner_low_aesthetic_score
		sdxl_refiner_high_aesthetic_score img2img_color_correction img2img_fix_steps img2img_background_color img2img_extra_noise inpainting_mask_weight
		initial_noise_multiplier return_mask return_mask_composite code_former_weight face_restoration face_restoration_model ESRGAN_tile
		ESRGAN_tile_overlap sd_vae_encode_method sd_vae_decode_method sd_vae_overrides_per_model_preferences sd_hypernetwork_strength
		extra_networks_default_multiplier lora_functional forge_preset forge_unet_storage_dtype forge_inference_memory`, all)
	return all
}()

// MeaningOf is what a member of the request of a class does.
func MeaningOf(class, member string) Meaning {
	if class == ClassTxt2Img || class == ClassImg2Img {
		return members[member]
	}
	return extras[member]
}

// MeaningOfSetting is what a setting does: Closed, Harmless, Model or Checkpoint.
func MeaningOfSetting(name string) Meaning { return settings[name] }

// SaysNoCheckpoint reports whether the value of a member or a setting stands for no checkpoint. What
// does so at one of them is a part of a name at another.
func SaysNoCheckpoint(member, name string) bool {
	switch member {
	case "refiner_checkpoint", "sd_model_refiner":
		return name == "" || name == "None" || name == "none"
	case "hr_checkpoint_name":
		return name == "" || name == "Use same checkpoint"
	}
	return name == ""
}

// none are the names that stand for no model of their own.
var none = map[string]bool{
	"": true, "none": true, "automatic": true, "auto": true, "default": true, "use same choices": true,
}

// NamesNone reports whether a name of anything but a checkpoint stands for no file, or for the
// one that is there anyway.
func NamesNone(name string) bool { return none[strings.ToLower(strings.TrimSpace(name))] }

// Forms are the names by which A1111 takes a model that a list has as "folder/file.ext [hash]",
// that first: with and without the hash, the extension and the folder, and the hash alone. A
// LoRA's other name stands for the hash.
func Forms(title string) []string {
	name, hash := title, ""
	if at := strings.LastIndex(title, " ["); at > 0 && strings.HasSuffix(title, "]") {
		name, hash = title[:at], title[at+2:len(title)-1]
	}
	slashed := strings.ReplaceAll(name, `\`, "/")
	stem := strings.TrimSuffix(name, path.Ext(slashed))
	flat := strings.ReplaceAll(strings.TrimSuffix(slashed, path.Ext(slashed)), "/", "_")
	all := []string{title, name, stem, path.Base(slashed), path.Base(strings.ReplaceAll(stem, `\`, "/")), flat}
	if hash != "" {
		all = append(all, stem+" ["+hash+"]", hash)
	}
	return all
}
