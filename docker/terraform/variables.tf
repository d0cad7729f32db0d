variable "host" {
  description = "The name under which the hub is reached, such as hub.example.com. Caddy gets its certificate."
  type        = string
}

variable "zone_id" {
  description = "The zone of Route 53 in which the name is made. Empty if it is elsewhere: point it to the output `address`."
  type        = string
  default     = ""
}

variable "logins" {
  description = "Who may log in: a name and the hash that `comfyhub hash-password` prints."
  type        = map(string)

  validation {
    condition     = length(var.logins) > 0 && alltrue([for name, hash in var.logins : can(regex("^[A-Za-z0-9._@-]+$", name)) && startswith(hash, "$2")])
    error_message = "A name has no spaces, and a hash is what `comfyhub hash-password` prints. Nobody could log in without one."
  }
}

variable "operators" {
  description = "Those of the logins that may pause, drain and restart."
  type        = list(string)
}

variable "vpc_id" {
  type = string
}

variable "subnet_id" {
  description = "A public subnet, for the hub."
  type        = string
}

variable "private_subnet_ids" {
  description = "Where GPU machines and ElastiCache are, the latter in two zones or more. They need a way out (a NAT gateway) for packages and models."
  type        = list(string)
  default     = []
}

variable "instance_type" {
  description = "Of the hub, for arm64. See docs/deploy-aws.md#sizes."
  type        = string
  default     = "t4g.medium"
}

variable "volume_size" {
  description = "GiB of the volume with the hub's data and, if embedded, its queue."
  type        = number
  default     = 20
}

variable "queue" {
  description = "`embedded`, on the hub's volume, or `elasticache`, for several hubs."
  type        = string
  default     = "embedded"

  validation {
    condition     = contains(["embedded", "elasticache"], var.queue)
    error_message = "The queue is embedded or elasticache."
  }
}

variable "secrets" {
  description = "The path of the parameters gossip-key and secret in SSM. Terraform does not read them, so its state has no secret."
  type        = string
  default     = "/comfyhub"
}

variable "release" {
  description = "Where the Debian packages and checksums.txt of a release are: a URL, or s3://bucket/folder of your own with what `make release` wrote into dist/."
  type        = string
  default     = "https://github.com/comfyhub/comfyhub/releases/download/v0.2.0"
}

variable "bucket" {
  description = "The name of the bucket that is made for inputs and outputs."
  type        = string
}

variable "gpu" {
  description = "GPU machines that come and go by need: an image with ComfyUI as a service at 127.0.0.1:8188, on Debian or Ubuntu with awscli. None if null."
  type = object({
    image         = string
    instance_type = optional(string, "g6.xlarge")
    max           = optional(number, 4)
    volume_size   = optional(number, 200)
  })
  default = null
}
