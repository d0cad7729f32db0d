// Package facade presents what is not ComfyUI as a ComfyUI server: a worker that fetches
// its jobs, or a server of another kind. A hub drives it as it drives any instance, so all
// that it does for those (leases, retries, inputs, previews, files) holds here too. A
// Backend does the work; everything that hubs see of a ComfyUI is here.
package facade
