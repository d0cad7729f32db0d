# What the machines may do: read their secrets and the release, and be reached by SSM. The hub also
# keeps files in the bucket, and sets how many GPU machines there are.

data "aws_caller_identity" "this" {}
data "aws_region" "this" {}
data "aws_partition" "this" {}

locals {
  arn        = "arn:${data.aws_partition.this.partition}"
  parameters = "${local.arn}:ssm:${data.aws_region.this.region}:${data.aws_caller_identity.this.account_id}:parameter${var.secrets}"
  release = [for bucket in regexall("^s3://(.+)$", var.release) : {
    Effect   = "Allow"
    Action   = ["s3:GetObject"]
    Resource = "${local.arn}:s3:::${bucket[0]}/*"
  }]
}

data "aws_iam_policy_document" "ec2" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "hub" {
  name_prefix        = "comfyhub-"
  assume_role_policy = data.aws_iam_policy_document.ec2.json
}

resource "aws_iam_role_policy" "hub" {
  name = "hub"
  role = aws_iam_role.hub.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([
      { Effect = "Allow", Action = ["ssm:GetParameter"], Resource = ["${local.parameters}/gossip-key", "${local.parameters}/secret"] },
      { Effect = "Allow", Action = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"], Resource = "${aws_s3_bucket.this.arn}/*" },
      { Effect = "Allow", Action = ["s3:ListBucket"], Resource = aws_s3_bucket.this.arn },
      ], local.release, flatten([for group in aws_autoscaling_group.gpu : [
        { Effect = "Allow", Action = ["autoscaling:DescribeAutoScalingGroups"], Resource = "*" },
        { Effect = "Allow", Action = ["autoscaling:SetDesiredCapacity", "autoscaling:SetInstanceProtection", "autoscaling:TerminateInstanceInAutoScalingGroup"], Resource = group.arn },
    ]]))
  })
}

resource "aws_iam_role" "gpu" {
  name_prefix        = "comfyhub-gpu-"
  assume_role_policy = data.aws_iam_policy_document.ec2.json
}

resource "aws_iam_role_policy" "gpu" {
  name = "gpu"
  role = aws_iam_role.gpu.id
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = concat([{ Effect = "Allow", Action = ["ssm:GetParameter"], Resource = ["${local.parameters}/gossip-key"] }], local.release)
  })
}

resource "aws_iam_role_policy_attachment" "sessions" {
  for_each   = { hub = aws_iam_role.hub.name, gpu = aws_iam_role.gpu.name }
  role       = each.value
  policy_arn = "${local.arn}:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_iam_instance_profile" "hub" {
  name_prefix = "comfyhub-"
  role        = aws_iam_role.hub.name
}

resource "aws_iam_instance_profile" "gpu" {
  name_prefix = "comfyhub-gpu-"
  role        = aws_iam_role.gpu.name
}
