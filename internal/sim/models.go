package sim

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// modelExtensions are the extensions of files that ComfyUI lists as models.
var modelExtensions = []string{".bin", ".ckpt", ".pkl", ".pt", ".pt2", ".pth", ".safetensors", ".sft"}

// modelFiles lists the models on disk in a folder such as "loras", with sub-folders
// in the names. It looks again at each call, because a real server sees a copied
// file at once, even while a prompt runs.
func (f *folders) modelFiles(folder string) []string {
	root := filepath.Join(f.base, "models", folder)
	var names []string
	// Unreadable files are not listed.
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case entry.IsDir(), !slices.Contains(modelExtensions, strings.ToLower(filepath.Ext(path))):
			return nil
		}
		if name, err := filepath.Rel(root, path); err == nil {
			names = append(names, name)
		}
		return nil
	})
	return names
}

// modelFiles lists the models of a folder: those of the configuration and those on
// disk, in order.
func (c *catalogue) modelFiles(folder string) []string {
	names := slices.Clone(c.models[folder])
	if c.disk != nil {
		names = append(names, c.disk.modelFiles(folder)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
